"""The size of a head and of its training (Recipe), and how far one is (Progress)."""

from dataclasses import dataclass

from decoders.errors import InputError, is_whole


@dataclass(frozen=True)
class Recipe:
    """The size of a head and of its training.

    Attributes:
        width: its width
        inner: width of its gate
        heads: of its attention
        vocabulary: it proposes this many tokens, the most frequent ones
        reads: layers of the target whose states it reads; None for three that are spread evenly
        steps: of the training
        rows: texts of a step
        length: tokens of a text
        places: of a draft, all of which are trained
        rate: learning rate at its peak
        compiled: whether the passes of the head are compiled, which takes a C++ compiler and a
            minute
        own_texts: how many texts the target writes; from the middle of the training on, each step
            sees as many of them as of the others
        seed: of weights and batches
    """

    width: int = 256
    inner: int = 512
    heads: int = 4
    vocabulary: int = 3072
    reads: tuple[int, ...] | None = None
    steps: int = 2000
    rows: int = 16
    length: int = 192
    places: int = 3
    rate: float = 3e-3
    compiled: bool = True
    own_texts: int = 3072
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"own_texts": 0, "vocabulary": 2, "length": 16, "seed": 0}
        for name in ("width", "inner", "heads", "vocabulary", "steps", "rows", "length", "places",
                     "own_texts", "seed"):  # fmt: skip
            value, low = getattr(self, name), least.get(name, 1)
            if not is_whole(value) or not low <= value < 2**31:
                raise InputError(f"{name} must be a whole number of at least {low}, not {value}.")
        if self.width % (2 * self.heads):
            raise InputError(
                f"width must be a multiple of {2 * self.heads}, twice the number of heads, not "
                f"{self.width}."
            )


@dataclass(frozen=True)
class Progress:
    """A step of a training.

    Attributes:
        step: its number, from 1
        steps: of the training
        loss: of the step
        seconds_left: estimated from the steps so far
        acceptance: held-out acceptance at each place of a draft, where it was measured
    """

    step: int
    steps: int
    loss: float
    seconds_left: float
    acceptance: tuple[float, ...] = ()
