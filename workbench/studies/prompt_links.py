"""A set of prompts in the query string of a link."""

from collections.abc import Mapping
from typing import Any

from decoders import InputError
from decoders.errors import quoted
from decoders.settings import nearest
from workbench.studies.prompts import BUILT_IN, MOST_PROMPTS

NAMES = ("prompts", "count")  # of the parameters


def to_link(data: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters for the prompts of a study, without what a form shows that no link fills."""
    prompts, shown = data.get("prompts") or {}, start.get("prompts", {})
    if prompts.get("name") not in BUILT_IN:  # the texts of a file do not fit into a link
        return {}
    found = zip(NAMES, ("name", "count"), strict=True)
    return {n: prompts[k] for n, k in found if prompts.get(k) not in (None, shown.get(k))}


def from_link(name: str, text: str, data: dict[str, Any]) -> None:
    """Write one of the parameters into the data of a study.

    Raises:
        InputError: if the value cannot be used
    """
    if name == "prompts" and text not in BUILT_IN:
        raise InputError(f"there are no built-in prompts {quoted(text)}: {nearest(text, BUILT_IN)}")
    given = {"name": text} if name == "prompts" else {"count": whole(text)}
    data.setdefault("prompts", {}).update(given)


def whole(text: str) -> int:
    """A number in a link.

    Raises:
        InputError: if it is not a whole number from 1 to 10,000
    """
    if not text.isdecimal() or len(text) > 5 or not 1 <= int(text) <= MOST_PROMPTS:
        raise InputError(
            f"only whole numbers from 1 to {MOST_PROMPTS:,} can be used, not {quoted(text)}."
        )
    return int(text)
