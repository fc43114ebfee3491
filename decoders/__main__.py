"""Prints a table of all decoders; `python -m decoders NAME` prints a decoder's settings."""

import dataclasses
import sys

from decoders.errors import InputError
from decoders.methods.catalog import catalog
from decoders.settings import Law


def table() -> str:
    rows = [
        "| name | what it does | text distributed as | draft model | from |",
        "|---|---|---|---|---|",
    ]
    for name, method in catalog.items():
        claim = Law(method.law).words if method.law else "no stated distribution"
        rows.append(
            f"| `{name}` | {method.summary} | {claim} | {'yes' if method.uses_draft else 'no'} "
            f"| {method.paper}, {method.section} |"
        )
    return "\n".join(rows)


def settings(name: str) -> str:
    """The settings of one decoder, one per line: name, default, help and allowed values."""
    return (
        "\n".join(
            f"{f.name} = {f.default!r}: {f.metadata['help']}{_allowed(f)}"
            for f in dataclasses.fields(catalog[name])
        )
        or "no settings of its own"
    )


def _allowed(field: dataclasses.Field) -> str:
    low, high, choices = (field.metadata[key] for key in ("low", "high", "choices"))
    words = [*map(repr, choices), *([f"{low} to {high}"] if low is not None else [])]
    return f" ({' or '.join(words)})" if words else ""


if __name__ == "__main__":
    try:
        print(settings(sys.argv[1]) if sys.argv[1:] else table())
    except InputError as error:
        sys.exit(str(error))
