"""Judgements of one draft in words: a row for each rule, or for rules of which the same is true."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from decoders import Judgement, catalog
from decoders.settings import Law

Row = dict[str, Any]


@cache
def titles() -> dict[str, str]:
    """From each rule to the title of the decoder that is known by it."""
    found: dict[str, str] = {}
    for method in catalog.values():
        made = method()
        rule = made.parts[1].name if hasattr(made, "parts") else made.name
        found.setdefault(rule, method.title)
    return found


def law(told: Judgement, headed: bool) -> str:
    """Whether the rule keeps the target's law for drafts drawn from q, in a word or two."""
    if told.rule.law is None or (headed and told.rule.lawless):
        return "not exact"
    return "exact" if told.rule.law == Law.TARGET else "exact for a mixture"


def grouped(
    found: Sequence[Judgement], names: Sequence[str], own: int = 0, headed: bool = False
) -> list[Row]:
    """The rows of a table.

    Args:
        found: the judgements
        names: the draft's tokens in words
        own: how many of the first ones are of the decoder whose draft it is
        headed: whether a head drafted it

    Returns:
        for each row: rules: their names, title: their titles, law, kept: number of tokens kept,
        mean: that over all random numbers, chances: for each token the chance that it is kept,
        why: a sentence, own: whether it is the decoder's own
    """
    rows: list[Row] = []
    for place, told in enumerate(found):
        row: Row = {
            "rules": [told.rule.name],
            "title": titles().get(told.rule.name, told.rule.name),
            "law": law(told, headed),
            "kept": told.kept,
            "mean": round(told.expected, 9),
            "chances": [round(chance, 9) for chance in told.chances],
            "why": told.why(names),
            "own": place < own,
        }
        same = ("law", "kept", "mean", "chances", "why")
        like = next((r for r in rows if all(r[key] == row[key] for key in same)), None)
        if like is None:
            rows.append(row)
        else:
            like["rules"] += row["rules"]
            like["title"] += f", {row['title']}"
    return rows
