"""Tables as CSV that a spreadsheet reads as what it is."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def as_csv(heads: Sequence[str], lines: Iterable[Mapping[str, Any]], quoted: bool = False) -> str:
    """The lines under their heads. An empty cell means that there is no such value, never zero.

    A text that a spreadsheet would run as a formula is marked as text.

    Args:
        heads: the names of the columns
        lines: the values by these names
        quoted: whether all texts are quoted, as those must be that may hold a lone carriage return
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(
        text,
        heads,
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL,
    )
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in line.items()} for line in lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value
