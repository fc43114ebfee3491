"""Where a branch begins: inside a text of another run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from decoders.errors import InputError, is_whole, refuse

MOST_TOKENS = 1_000_000
MOST_STEPS = 100  # branches of branches


@dataclass(frozen=True, slots=True)
class Step:
    """One choice: where a text was left, and the token that it was continued with.

    Attributes:
        run: the id of the run
        decoder: the decoder whose text it is
        repeat: the repeat whose text it is, from 0
        at: tokens of the text that were kept
        chosen: the text of the token after them
    """

    run: str
    decoder: str
    repeat: int
    at: int
    chosen: str


@dataclass(frozen=True, slots=True)
class Start:
    """The tokens that a branch continues.

    Attributes:
        ids: the tokens of the prompt, those kept of the parent's text, and the chosen one; they are
            never tokenised again
        trail: the choices that led here, the first one first; the last one names the parent

    Raises:
        InputError: if there are too few or too many tokens or choices, or one is not a token id
    """

    ids: tuple[int, ...]
    trail: tuple[Step, ...]

    def __post_init__(self) -> None:
        refuse(
            (
                not 0 < len(self.ids) <= MOST_TOKENS
                or not all(is_whole(i) and i >= 0 for i in self.ids),
                f"A branch continues a list of 1 to {MOST_TOKENS:,} token ids.",
            ),
            (
                not 0 < len(self.trail) <= MOST_STEPS,
                f"A branch has a parent, and at most {MOST_STEPS} ancestors; "
                "start a new run from its text.",
            ),
        )

    def to_json(self) -> dict[str, Any]:
        return {"ids": list(self.ids), "trail": [asdict(step) for step in self.trail]}

    @staticmethod
    def from_json(data: Any) -> "Start":
        """The start in data that `to_json` gave.

        Raises:
            InputError: if the data is not a start
        """
        try:
            return Start(tuple(data["ids"]), tuple(_step(step) for step in data["trail"]))
        except (TypeError, KeyError, ValueError):
            raise InputError(
                "The start of a branch must have `ids` and a `trail`, as exports have them."
            ) from None


def _step(data: Mapping[str, Any]) -> Step:
    step = Step(*(data[name] for name in Step.__dataclass_fields__))
    texts, counts = (step.run, step.decoder, step.chosen), (step.repeat, step.at)
    if not (
        all(isinstance(text, str) for text in texts)
        and all(is_whole(count) and 0 <= count <= MOST_TOKENS for count in counts)
    ):
        raise ValueError
    return step
