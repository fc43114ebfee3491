"""The size of a drafter and of its training (Recipe), and how far one is (Step)."""

from dataclasses import dataclass

from decoders.errors import InputError, allowed, is_whole

KINDS = "head", "draft"


@dataclass(frozen=True)
class Recipe:
    """The size of a drafter and of its training.

    Attributes:
        kind: "head", which reads the target's states, or "draft", a model of its own
        width: its width; 0 for the target's, whose embeddings a head then shares, frozen and not
            saved, and a draft begins with. Embeddings of its own need far more text.
        inner: width of its gate; 0 for 8/3 of the width
        heads: of its attention; 0 for one each 64 numbers
        groups: heads of keys and values; 0 for as many as heads
        layers: of a draft; a head has one
        vocabulary: it proposes this many tokens, the most frequent ones
        choose: whether a head whose training goes on gets new tokens to propose, as a new one does
        reads: layers of the target whose states a head reads, numbered as in transformers; None for
            three of them, the last one among them
        steps: of the training
        rows: texts of this length in a step; of shorter ones there are more
        length: tokens of a text at most
        places: of a head's draft, all of which are trained
        rate: learning rate of AdamW, for norms; output rows have a third of it
        muon: learning rate of Muon, for matrices
        own_texts: how many texts the target writes; 0 for only those that are given
        probes: prompts that acceptance is measured on
        seed: of weights and batches
    """

    kind: str = "head"
    width: int = 0
    inner: int = 0
    heads: int = 0
    groups: int = 0
    layers: int = 2
    vocabulary: int = 8192
    choose: bool = False
    reads: tuple[int, ...] | None = None
    steps: int = 2000
    rows: int = 8
    length: int = 256
    places: int = 3
    rate: float = 2e-3
    muon: float = 0.04
    own_texts: int = 3072
    probes: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        allowed("kind", self.kind, choices=KINDS)
        least = {
            "width": 0, "inner": 0, "heads": 0, "groups": 0, "own_texts": 0, "vocabulary": 2,
            "length": 16, "seed": 0,
        }  # fmt: skip
        for name in (
            "width", "inner", "heads", "groups", "layers", "vocabulary", "steps", "rows", "length",
            "places", "own_texts", "probes", "seed",
        ):  # fmt: skip
            value, low = getattr(self, name), least.get(name, 1)
            if not is_whole(value) or not low <= value < 2**31:
                raise InputError(f"{name} must be a whole number of at least {low}, not {value}.")
        heads = self.heads or max(1, self.width // 64)
        if self.width % (2 * heads):
            raise InputError(
                f"width must be a multiple of {2 * heads}, twice the number of heads, not "
                f"{self.width}."
            )
        if self.width and self.groups and heads % self.groups:
            raise InputError(f"groups must divide the number of heads, {heads}.")


@dataclass(frozen=True)
class Acceptance:
    """What becomes of drafted tokens on held-out prompts, by place of a draft.

    Attributes:
        greedy: the share of tokens that are kept at temperature 0, of those whose places before
            were kept
        drawn: the same at temperature 0.7 and top-p 0.9
    """

    greedy: tuple[float, ...]
    drawn: tuple[float, ...]

    @staticmethod
    def tokens(shares: tuple[float, ...]) -> float:
        """Tokens of a round whose draft has all these places."""
        total, reached = 1.0, 1.0
        for share in shares:
            reached *= share
            total += reached
        return total


@dataclass(frozen=True)
class Step:
    """A step of a training.

    Attributes:
        step: its number, from 1
        steps: of the training
        tokens: that it has learnt from, those seen twice counted twice
        loss: of the step
        seconds_left: estimated from the steps so far
        acceptance: on held-out prompts, where it was measured
    """

    step: int
    steps: int
    tokens: int
    loss: float
    seconds_left: float
    acceptance: Acceptance | None = None
