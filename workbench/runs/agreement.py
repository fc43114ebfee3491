"""Whether a text is the one that it must be (Agreement)."""

from dataclasses import dataclass

from workbench.runs.values import Amount, Count


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether a result has the tokens that it must have.

    Attributes:
        reference: the decoder whose tokens these must equal: greedy for an exact decoder at
            temperature 0, else the same decoder with the same seed in another batch
        compared: prompts compared
        differing: prompts whose tokens differ; the fields below describe the first of them and are
            None if not known
        differs_at: index of the first token that differs
        gap: nats between the reference's token there and the other one, under the raw target in the
            reference's run; None if the other is not among its five likeliest
        noise: nats by which the two results' log-probabilities of the same tokens differ before
            that token: passes of different shapes round differently
        near_tie: whether the gap is within the noise of both sides
        dtype: of the target's weights
        verdict: that of the judge of greedy texts, if it was asked
        says: its reasons, in words
    """

    reference: str
    compared: Count
    differing: Count
    differs_at: Count | None = None
    gap: Amount | None = None
    noise: Amount | None = None
    near_tie: bool = False
    dtype: str = ""
    verdict: str = ""
    says: str = ""
