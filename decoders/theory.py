"""The papers' closed forms. Nothing here knows a model.

Symbols that recur: alpha, mean acceptance of a draft token; gamma, draft tokens per round; c, time
of a draft pass divided by that of a target pass; tau, MTAD's threshold; U, a bound in nats on
|log p - log q|.
"""

import itertools
import math
from bisect import bisect_left

import numpy as np

from decoders.distribution import Distribution, above

# ---- Speculative decoding (Leviathan et al. 2023, arXiv 2211.17192, section 3)


def expected_tokens(alpha: float, gamma: float) -> float:
    """Expected tokens per round, (1 - alpha^(gamma+1)) / (1 - alpha) (eq. 1)."""
    return float(gamma + 1) if alpha == 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def walltime_factor(alpha: float, gamma: float, c: float) -> float:
    """Expected speed-up over plain decoding (theorem 3.8)."""
    return expected_tokens(alpha, gamma) / (gamma * c + 1)


def best_gamma(alpha: float, c: float, longest: int = 64) -> int:
    """The draft length from 1 to `longest` with the largest wall-time factor (section 3.5).

    Of equals it is the shortest.
    """
    return max(range(1, longest + 1), key=lambda gamma: walltime_factor(alpha, gamma, c))


# ---- SpecTr (Sun et al. 2023, arXiv 2310.15141, K-SEQ)


def kseq_division(p: Distribution, q: Distribution, k: int) -> float:
    """rho*, the root of 1 - (1-beta)^k = rho beta on [1, k] for beta(rho) = sum min(q, p / rho).

    It is rounded up by at most k 2^-40. Any rho from rho* to k gives the target's law; below rho*
    the residual would be negative.
    """
    if k == 1:
        return 1.0
    ids = sorted({x for each in (p, q) for x, _ in each.items()})
    p_x, q_x = (
        np.array(list(map(each.within(ids).mass.get, ids, [0.0] * len(ids)))) for each in (p, q)
    )
    ratio = np.divide(p_x, q_x, out=np.full(len(p_x), np.inf), where=q_x > 0)
    order = ratio.argsort()
    p_x, q_x, ratios = p_x[order], q_x[order], ratio[order].tolist()
    # (1-beta)^k and 1 - rho beta as what p / rho leaves of q and rho q of p: taken from 1, which p
    # sums to but for rounding, a rest of 1e-16 would be the k-th power of 0.1 at k = 16.
    p_below, q_below = ([0.0, *x.cumsum().tolist()] for x in (p_x, q_x))
    p_above, q_above = ([*x[::-1].cumsum()[::-1].tolist(), 0.0] for x in (p_x, q_x))
    low, high = 1.0, min(float(k), max(1.0, ratios[-1]))  # above all ratios nothing is left of p
    for _ in range(40):
        rho = (low + high) / 2
        place = bisect_left(ratios, rho)
        of_q = max(0.0, q_below[place] - p_below[place] / rho)
        if of_q**k < p_above[place] - rho * q_above[place]:
            low = rho
        else:
            high = rho
    return high


# ---- DSBD (Qin et al. 2024, arXiv 2409.16560, section 3.2)


class Refusals:
    """p_beam after draws from q_beam were refused in a row: norm(max(0, p - q)) of it for each.

    After j of them it is max(0, p - t q) / r, where (t, r) = `after(j)`: the next r is the total of
    max(0, p - (t + r) q). So none of the measures between has to be made.
    """

    def __init__(self, p: Distribution, q: Distribution):
        self.p, self.q, self._after = p, q, [(0.0, 1.0)]

    def after(self, count: int) -> tuple[float, float]:
        """(t, r) after so many refusals; r is 0 if q covers what is left, but for rounding."""
        while len(self._after) <= count:
            taken = sum(self._after[-1])
            self._after.append((taken, above(self.p, self.q, taken).total))
        return self._after[count]

    def left(self, count: int) -> Distribution:
        taken, rest = self.after(count)
        return above(self.p, self.q, taken) / rest if count else self.p


def beam_acceptances(refusals: Refusals, draws: int) -> list[float]:
    """alpha_1 .. alpha_draws (eq. 4), for the chance to accept the j-th draw since an acceptance.

    A chance that misses 1 only by the rounding of sums counts as 1, because a threshold of 1 asks
    for exactly that.
    """
    alphas: list[float] = []
    sure = 1 - 32 * max(refusals.p.rounding, refusals.q.rounding)
    for j in range(draws):
        alpha = 1 - refusals.after(j + 1)[1] / refusals.after(j)[1]
        if alpha >= sure:  # no draw is refused, and p stays
            return alphas + [1.0] * (draws - j)
        alphas.append(max(0.0, alpha))
    return alphas


def accepted_distribution(alphas: list[float]) -> list[float]:
    """P(m, k), the chance that k of m = len(alphas) draws are accepted, for k = 0 .. m (eq. 2-3).

    The index of alpha restarts at 1 after each acceptance.
    """
    m = len(alphas)
    refused = [math.prod(1 - a for a in alphas[:i]) for i in range(m + 1)]
    table = [[1.0]]
    for n in range(1, m + 1):
        accepted = (
            sum(alphas[i] * refused[i] * table[n - 1 - i][k - 1] for i in range(n - k + 1))
            for k in range(1, n + 1)
        )
        table.append([refused[n], *accepted])
    return table[m]


def dynamic_width(alphas: list[float], threshold: float, minimum: int) -> int:
    """max(W_min, the largest K with P(at least K accepted) >= t), by eq. 5-7.

    The sum of eq. 5 must start at k = 0. `threshold` is t and `minimum` is W_min.
    """
    at_least, width = 1.0, 0
    for k, probability in enumerate(accepted_distribution(alphas)):
        # at_least is P(at least k); the slack lets a sum that is 1 but for rounding pass t = 1.
        if at_least >= threshold - 1e-12:
            width = k
        at_least -= probability
    return max(minimum, width)


def dsbd_steps(beta: float, gamma: float, threshold: float = 1.0) -> float:
    """Steps per round from min(t, beta) (theorem 3.2).

    It is a lower bound if beta is constant or the minimum over reachable layers, but not if beta is
    a mean. If beta is 0 or 1, equally likely, t = 0.9 and gamma = 1, there are 1.45 steps, not 1.5.
    """
    return expected_tokens(min(threshold, beta), gamma)


# ---- MTAD (Qin et al. 2024, arXiv 2407.09722, section 3.2)


def mtad_kept_length(threshold: float, U: float, gamma: int) -> int:
    """A lower bound on the draft tokens that a round keeps: min(gamma, ceil(ln(1/tau)/U) - 1).

    This is theorem 3.6 with the strict inequality of the rule. U = 0 keeps everything if tau < 1,
    and tau = 0 always does.
    """
    if threshold == 0 or (U == 0 and threshold < 1):
        return gamma
    if threshold >= 1 or math.isinf(U):
        return 0
    return min(gamma, max(0, math.ceil(math.log(1 / threshold) / U) - 1))


# ---- EMS-SD (arXiv 2405.07542, appendix B)


def expected_padding(p: float, batch: int, cap: int) -> float:
    """The share of a padded batch that is padding, which figure 6 simulates (eq. 8-11), exactly.

    Each acceptance tau is geometric, but at most `cap`. By symmetry the expectation of one request
    is the batch's mean: 1 - E[tau / tau_max], where E sums, over k, 1/k of
    E[tau; tau_max <= k] - E[tau; tau_max <= k - 1].

    Args:
        p: accuracy of the next draft token
        batch: number of requests
        cap: longest acceptance
    """
    below = [1 - p**k for k in range(cap)] + [1.0]  # P(tau <= k)
    # E[tau; tau <= k]
    partial = [0.0, *itertools.accumulate(k * (below[k] - below[k - 1]) for k in range(1, cap + 1))]
    # E[tau; tau_max <= k]
    joint = [e * b ** (batch - 1) for e, b in zip(partial, below, strict=True)]
    return 1 - sum((joint[k] - joint[k - 1]) / k for k in range(1, cap + 1))
