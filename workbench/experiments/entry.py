"""The journal's row of an experiment, checked as it is read: it may be damaged in any way."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from workbench.experiments.request import Request
from workbench.runs.values import Count, Date


def _asked(text: str) -> Request:
    return Request.from_json(json.loads(text))


@dataclass(frozen=True, slots=True)
class Entry:
    """An experiment's row.

    Attributes:
        title: the plan's title
        created: UTC, ISO 8601
        request: the request
        environment: workers, pairs, code and sets that it runs on
        total: number of its items
        stop: whether it has been asked to stop
        miscounted: whether an earlier version took rows of other prompts for some of its items
    """

    COLUMNS: ClassVar = (
        "title", "created", "request", "environment", "total", "stop", "miscounted",
    )  # fmt: skip

    title: str
    created: Date
    request: Annotated[Request, BeforeValidator(_asked)]
    environment: Annotated[dict[str, Any], BeforeValidator(json.loads)]
    total: Count
    stop: bool
    miscounted: bool

    @staticmethod
    def read(values: Sequence[Any]) -> "Entry | None":
        """From the values of COLUMNS; None if any of them is damaged."""
        try:
            return _ENTRY.validate_python(dict(zip(Entry.COLUMNS, values, strict=True)))
        # A malformed request raises the last two.
        except (ValidationError, TypeError, KeyError):
            return None


_ENTRY = TypeAdapter(Entry)
