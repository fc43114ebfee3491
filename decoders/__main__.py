"""`python -m decoders` prints the README's table of decoders; `python -m decoders NAME` prints the settings of one."""

import dataclasses
import sys

from decoders.catalog import catalog
from decoders.errors import InputError


def table() -> str:
    """The catalog as a Markdown table."""
    rows = ["| name | what it does | output | draft model | from |", "|---|---|---|---|---|"]
    for name, method in catalog.items():
        claim = f"exact: {method.law}" if method.law else "its own"
        rows.append(
            f"| `{name}` | {method.summary} | {claim} | {'yes' if method.uses_draft else 'no'} | {method.paper}, {method.section} |"
        )
    return "\n".join(rows)


def settings(name: str) -> str:
    """The settings of one decoder, one per line: name, default, help."""
    lines = [f"{f.name} = {f.default!r}: {f.metadata['help']}" for f in dataclasses.fields(catalog[name])]
    return "\n".join(lines) or "no settings of its own"


if __name__ == "__main__":
    try:
        print(settings(sys.argv[1]) if sys.argv[1:] else table())
    except InputError as error:
        sys.exit(str(error))
