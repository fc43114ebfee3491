"""Values as text: settings, for inputs on the page and for links, and back; counts and places."""

import dataclasses
from typing import Any

from decoders import Method


def is_switch(field: dataclasses.Field) -> bool:
    return isinstance(field.default, bool) and {False, True} <= set(field.metadata["choices"])


def is_text(field: dataclasses.Field) -> bool:
    """Whether the setting is any text."""
    return isinstance(field.default, str) and not field.metadata["choices"]


def is_list(field: dataclasses.Field) -> bool:
    """Whether the setting is several numbers or several texts, written as one text."""
    return isinstance(field.default, tuple)


def written(field: dataclasses.Field, value: Any) -> str:
    """A setting's value as text.

    `parse` reads it back, except several texts, which are joined into one.
    """
    if is_list(field) and not isinstance(value, str):
        return ("\n\n" if any(isinstance(v, str) for v in value) else ",").join(map(str, value))
    return "" if value is None else str(value)


def parse(field: dataclasses.Field, raw: Any) -> Any:
    """A typed value as the field has it, whole numbers as int.

    A value that cannot be read is returned unchanged, for a check to refuse.
    """
    if is_text(field):
        return raw
    if is_list(field):
        return () if raw == "" and not field.default else raw
    if isinstance(raw, str):
        for choice in field.metadata["choices"]:
            if raw.strip() == written(field, choice):
                return choice
        try:
            raw = float(raw)
        except ValueError:
            return raw
    if isinstance(field.metadata["low"], int) and isinstance(raw, float) and raw.is_integer():
        return int(raw)
    return raw


def allowed(field: dataclasses.Field, most: float | None = None) -> str:
    """The values that a field may take, in words.

    Args:
        most: the largest value in this place, if it is lower than the field's
    """
    low, high, choices = (field.metadata[key] for key in ("low", "high", "choices"))
    words = [written(field, c) or "empty" for c in choices]
    if low is not None:
        high = high if most is None else min(high, most)
        words.append(f"{low:g} to {high:,.16g}")
    return " or ".join(words)


def counted(count: int, one: str, several: str = "") -> str:
    """A number with its noun: "1 prompt", "2,000 prompts".

    Args:
        several: the plural, if it does not just add an s
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def ordinal(number: int) -> str:
    """An ordinal number: "1st", "12th"."""
    endings = {} if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{endings.get(number % 10, 'th')}"


def shortened(text: str, most: int) -> str:
    """The text in one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def cited(method: type[Method]) -> str:
    """A decoder's source: "Leviathan et al. 2023, §2.3"; only numbered sections get the sign."""
    return f"{method.paper}, {'§' if method.section[0].isdigit() else ''}{method.section}"
