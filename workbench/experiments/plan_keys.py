"""The keys of one table of a plan, each read with its type.

Every fault gives one sentence that names the place and the key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decoders import InputError
from decoders.errors import quoted
from decoders.settings import nearest


@dataclass(frozen=True)
class Keys:
    """A table of a plan.

    Attributes:
        place: where the table is, in words
        data: its keys and values
    """

    place: str
    data: Mapping[str, Any]

    def fault(self, key: str, wanted: str) -> InputError:
        return InputError(f"{self.place}: `{key}` must be {wanted}, not {quoted(self.data[key])}.")

    def refuse_others(self, *known: str) -> None:
        for key in self.data:
            if key not in known:
                raise InputError(
                    f"{self.place}: there is no key {quoted(key)}: {nearest(key, known)}"
                )

    def text(self, key: str, default: str | None = None) -> str:
        value = self.data.get(key, default)
        if value is None:
            raise InputError(f"{self.place}: the key `{key}` is missing.")
        if not isinstance(value, str):
            raise self.fault(key, "a text")
        return value

    def texts(self, key: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        value = self.data.get(key, list(default))
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.fault(key, "a list of texts")
        return tuple(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.data.get(key, default)
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def whole(self, key: str, default: Any, low: int = 1, high: int = 10**9) -> Any:
        value = self.data.get(key, default)
        if key in self.data and (type(value) is not int or not low <= value <= high):
            raise self.fault(key, f"a whole number from {low} to {high}")
        return value

    def numbers(self, key: str, default: Sequence[Any], whole: bool = False) -> tuple[Any, ...]:
        """A number, or a list of numbers, which is a grid."""
        value = self.data.get(key, list(default))
        found = value if isinstance(value, list) else [value]
        kinds = (int,) if whole else (int, float)
        if not found or not all(type(v) in kinds for v in found):
            raise self.fault(key, f"a {'whole ' if whole else ''}number, or a list of them")
        return tuple(dict.fromkeys(found))

    def tables(self, key: str) -> list["Keys"]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise InputError(f"{self.place}: write `{key}` as [[{key}]].")
        return [Keys(f"{self.place}, {key} {i}", v) for i, v in enumerate(value, 1)]
