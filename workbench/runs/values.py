"""The values that the fields of a run may hold.

A run may come from anybody's file, and whatever shows it relies on these bounds.
"""

import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from decoders.errors import quoted

# Whole numbers that every reader of JSON reads alike.
Count = Annotated[int, Field(ge=0, le=2**53)]
# Sums, squares and ratios of these stay within floating point.
Amount = Annotated[float, Field(ge=-1e100, le=1e100)]
Number = Annotated[int, Field(ge=-(2**53), le=2**53)] | Amount | str | None
TEXTS = ("energy_source",)  # the metrics that are texts


def one_of(names: Collection[str]) -> AfterValidator:
    def known(name: str) -> str:
        if name not in names:
            raise ValueError(f"{quoted(name)} is not one of {', '.join(names)}")
        return name

    return AfterValidator(known)


def _until_tomorrow(text: str) -> str:
    when = datetime.fromisoformat(text)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    if when > datetime.now(UTC) + timedelta(days=1):
        raise ValueError("the date is in the future")
    return text


def _numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    texts = [
        name for name, value in metrics.items() if isinstance(value, str) and name not in TEXTS
    ]
    if texts:
        raise ValueError(f"{quoted(texts[0])} is a text where a number belongs")
    return metrics


def _strict(data: dict[str, Any]) -> dict[str, Any]:
    json.dumps(data, allow_nan=False)
    return data


def _with_settings(study: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(study.get("settings"), dict):
        raise ValueError("the study has no settings")
    return study


def _with_a_number(scores: dict[str, float | str]) -> dict[str, float | str]:
    if isinstance(scores.get("score"), str):
        raise ValueError("the score is a text")
    return scores


# ISO 8601; a later date would stay on top of every list.
Date = Annotated[str, AfterValidator(_until_tomorrow)]
Scores = Annotated[dict[str, float | str], AfterValidator(_with_a_number)]
Metrics = Annotated[dict[str, Number], AfterValidator(_numbers)]
# An object that strict JSON can hold.
Plain = Annotated[dict[str, Any], AfterValidator(_strict)]
PlainStudy = Annotated[Plain, AfterValidator(_with_settings)]
