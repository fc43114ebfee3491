"""Multi-round rejection: the children of a node are tried one after another, each compared with what is left of p after the last."""

from dataclasses import dataclass

from decoders.rules.walk import Pick
from decoders.sampling import RandomSource, residual, without
from decoders.shapes import Logits, Probs, TokenId


@dataclass(frozen=True, slots=True)
class MultiRoundRule:
    """Accept a child with probability min(1, p'/q). p' is p at first and norm(max(0, p' - q)) after each rejection; at the end draw from p'.

    replacement  True: the children were drawn i.i.d. from q (SpecInfer), and equal ones are tried as often as they were drawn;
                 False: they were drawn without replacement (MCSS), so a refused token is removed from q too
    """

    replacement: bool = True

    def pick(self, p: Probs, q: Probs, tokens: list[TokenId], logits: Logits, source: RandomSource) -> Pick:
        pick = Pick(rest=p)
        for token in tokens:
            p_token, q_token = pick.rest[token].item(), q[token].item()
            probability = min(1.0, p_token / q_token)
            pick.kept, u = source.accept(probability)
            pick.tests.append((p_token, q_token, probability, u))
            if pick.kept:
                break
            pick.rest = residual(pick.rest, q)
            if not self.replacement:
                q = without(q, token)
        return pick
