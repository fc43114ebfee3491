"""What the fields of a run may hold. A run may come from anybody's file, and whatever shows one relies on these bounds."""

import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, Field

Count = Annotated[int, Field(ge=0, le=2**53)]  # whole numbers that every reader of JSON reads alike
Amount = Annotated[float, Field(ge=-1e100, le=1e100)]  # sums, squares and ratios of these stay within floating point
Number = Annotated[int, Field(ge=-(2**53), le=2**53)] | Amount | str | None
TEXTS = ("energy_source",)  # the metrics that are texts


def one_of(names: Collection[str]) -> AfterValidator:
    def known(name: str) -> str:
        if name not in names:
            raise ValueError(f"{name[:40]!r} is not one of {', '.join(names)}")
        return name

    return AfterValidator(known)


def _until_tomorrow(text: str) -> str:
    when = datetime.fromisoformat(text)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    if when > datetime.now(UTC) + timedelta(days=1):
        raise ValueError("the date is in the future")
    return text


def _numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    texts = [name for name, value in metrics.items() if isinstance(value, str) and name not in TEXTS]
    if texts:
        raise ValueError(f"{texts[0][:40]!r} is a text where a number belongs")
    return metrics


def _strict(data: dict[str, Any]) -> dict[str, Any]:
    json.dumps(data, allow_nan=False)
    return data


def _with_settings(study: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(study.get("settings"), dict):
        raise ValueError("the study has no settings")
    return study


Date = Annotated[str, AfterValidator(_until_tomorrow)]  # ISO 8601; a later date would stay on top of every list
Metrics = Annotated[dict[str, Number], AfterValidator(_numbers)]
Plain = Annotated[dict[str, Any], AfterValidator(_strict)]  # what strict JSON can hold
PlainStudy = Annotated[Plain, AfterValidator(_with_settings)]
