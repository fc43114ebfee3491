"""Rounded figures that a sentence relates to each other, such as "0.538 / 0.645 = 83%".

They have as many digits as it takes for the sentence to be true of them.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal

MOST = 9  # digits more than usual
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def enough(holds: Callable[..., bool], *shown: Callable[[int], str]) -> list[str]:
    """The texts of some figures with as few more digits as possible to make `holds` true of them.

    Args:
        holds: called with the numbers that a reader finds in the texts
        shown: the text of each figure, with a number of digits more than usual

    Returns:
        the texts; with no more digits than usual if `holds` is never true
    """
    for more in range(MOST + 1):
        texts = [text(more) for text in shown]
        numbers = [_read(text) for text in texts]
        with suppress(ZeroDivisionError):  # by a number that shows as 0
            if None in numbers or holds(*numbers):
                return texts
    return [text(0) for text in shown]


def gives(result: str, value: float) -> bool:
    """Whether `value`, rounded as `result` is, is `result`."""
    found, shown = NUMBER.search(result), _read(result)
    if found is None or shown is None:
        return True
    last = int(Decimal(found[0].replace(",", "")).as_tuple().exponent) - 2 * ("%" in result)
    return abs(value - shown) <= 0.5000001 * 10.0**last


def _read(text: str) -> float | None:
    found = NUMBER.search(text)
    return float(found[0].replace(",", "")) / (100 if "%" in text else 1) if found else None
