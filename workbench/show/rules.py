"""The rule by which a decoder kept or refused a draft token, for the card of a token.

It is put in words, with its threshold.
"""

import math
from collections.abc import Callable
from typing import Any

from decoders import Method

Rule = dict[str, Any]
JOINT = (
    "p and q are joint here: of a beam and its next token, among all continuations of all beams."
)


def rule(method: Method) -> Rule:
    """The rule of a decoder, for the card of a token.

    Returns:
        an object with these fields.
        says: a sentence
        threshold: the number that `measure` must exceed, None if a random number decides
        at_most: whether the real threshold may be lower
        measure: "p" or "ratio" (the joint ratio of the draft up to this token)
        raw: whether a draft's p is its probability before temperature and cut-offs
    """
    return {
        "says": "",
        "threshold": None,
        "at_most": False,
        "measure": "p",
        "raw": False,
    } | _RULES.get(method.name, lambda _: {})(method)


def _ratio(method: Any) -> Rule:
    if method.lenience < 1:
        return {
            "says": f"Lenience {method.lenience:g}: a draft is accepted more readily than p / q "
            "says, and the text is no longer exact."
        }
    return {}


def _joint(method: Any) -> Rule:
    return {
        "says": "Keeps the longest part of the draft whose joint ratio, min(1, all p / all q), is "
        f"above {method.threshold:g}, even if that of a shorter part is not.",
        "threshold": method.threshold, "measure": "ratio", "raw": method.ratio == "raw",
    }  # fmt: skip


def _rollback(method: Any) -> Rule:
    least = math.exp(-method.rollback)
    return {
        "says": "Kept if p, before temperature and cut-offs, is at least e to the power of "
        f"−{method.rollback:g}, which is {least:.3g}.",
        "threshold": least, "raw": True,
    }  # fmt: skip


def _typical(method: Any) -> Rule:
    return {
        "says": f"Kept if p is above {method.epsilon:g}, or above {method.delta:g} e to the power "
        "of −H if that is less: H is the entropy of the large model here, so where it is unsure, a "
        "lower p is enough.",
        "threshold": method.epsilon, "at_most": True,
    }  # fmt: skip


def _says(text: str) -> Callable[[Method], Rule]:
    return lambda _: {"says": text}


_RULES: dict[str, Callable[[Any], Rule]] = {
    "speculative": _ratio, "lookup": _ratio, "ngram": _ratio,
    "mtad": _joint, "bild": _rollback, "typical": _typical,
    "spectr": _says("p / q is divided by a factor that makes several drafts together exact."),
    "specinfer": _says("p is the large model's probability left after earlier refusals here."),
    "mcss": _says("p is the large model's probability left after earlier refusals here."),
    "dsbd": _says(f"{JOINT} After a refusal, p is the probability left."),
    "beam_sampling": _says(JOINT.replace("p and q are", "p is")),
}  # fmt: skip
