"""The values that the fields of a run may hold.

A run may come from anybody's file, and whatever shows it relies on these bounds.
"""

import json
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from decoders.errors import quoted
from workbench.studies.methods import known

# Whole numbers that every reader of JSON reads alike.
Count = Annotated[int, Field(ge=0, le=2**53)]
# Sums, squares and ratios of these stay within floating point.
Amount = Annotated[float, Field(ge=-1e100, le=1e100)]
Number = Annotated[int, Field(ge=-(2**53), le=2**53)] | Amount | str | None
TEXTS = ("energy_source",)  # the metrics that are texts


def date() -> str:
    """The present time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def refused_if(wrong: Callable[[Any], bool], says: str) -> AfterValidator:
    """Refuses the values that are wrong, with this message."""

    def checked(value: Any) -> Any:
        if wrong(value):
            raise ValueError(says)
        return value

    return AfterValidator(checked)


def one_of(names: Collection[str]) -> AfterValidator:
    def known(name: str) -> str:
        if name not in names:
            raise ValueError(f"{quoted(name)} is not one of {', '.join(names)}")
        return name

    return AfterValidator(known)


def _after_tomorrow(text: str) -> bool:
    when = datetime.fromisoformat(text)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return when > datetime.now(UTC) + timedelta(days=1)


def _numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    for name, value in metrics.items():
        if isinstance(value, str) and name not in TEXTS:
            raise ValueError(f"{quoted(name)} is a text where a number belongs")
    return metrics


def _strict(data: dict[str, Any]) -> dict[str, Any]:
    json.dumps(data, allow_nan=False)
    return data


Decoder = Annotated[str, refused_if(lambda name: not known(name), "no such decoder")]
# ISO 8601; a later date would stay on top of every list.
Date = Annotated[str, refused_if(_after_tomorrow, "the date is in the future")]
Scores = Annotated[
    dict[str, float | str],
    refused_if(lambda scores: isinstance(scores.get("score"), str), "the score is a text"),
]
Metrics = Annotated[dict[str, Number], AfterValidator(_numbers)]
# An object that strict JSON can hold.
Plain = Annotated[dict[str, Any], AfterValidator(_strict)]
PlainStudy = Annotated[
    Plain,
    refused_if(
        lambda study: not isinstance(study.get("settings"), dict), "the study has no settings"
    ),
]
