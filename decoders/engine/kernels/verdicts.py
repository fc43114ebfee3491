"""How many drafted tokens a rule will probably keep (verdict), for numba to compile.

Sums may be rounded in another way than those of the rules: whoever asks compares.
"""

import math

import numpy as np
from numba import njit

from decoders.engine.kernels.codes import Rule
from decoders.engine.kernels.guess import draw, weigh

TOKENWISE, MATCH, BLOCK, TYPICAL, ROLLBACK, FLY, CASCADE, OPT, ENSEMBLE = map(int, Rule)


@njit(error_model="numpy")
def verdict(rule, rows, seen, place, q, tokens, warping, numbers, p):
    """Judge a chain.

    Args:
        rule: a number of `Rule`, and its settings
        rows: the target's logits before each token and after the last, (n + 1, V)
        seen: what was read of them and others, see `decoders.engine.kernels.scan.note`
        place: where it begins there
        q: the distributions that the tokens were drawn from, (n or more, V); of a mixture also the
            one after the last token
        tokens: the draft, (n,)
        warping: see `weigh`
        numbers: the uniform numbers of the tests and of the target's token
        p: receives the target's distributions that the rule looks at, (n + 1 or more, V). The one
            after the kept tokens is replaced by the one that the target's token is drawn from

    Returns:
        how many tokens are kept, and how many numbers the tests took
    """
    if rule[0] == BLOCK:
        return as_a_block(rows, q, tokens, warping, numbers, p)
    if rule[0] == FLY:
        return loosely(rule, rows, q, tokens, warping, numbers, p)
    if rule[0] == TYPICAL or rule[0] == ROLLBACK:
        return by_threshold(rule, rows, seen, place, tokens, warping, p), 0
    return by_token(rule, rows, q, tokens, warping, numbers, p)


@njit(error_model="numpy")
def by_token(rule, rows, q, tokens, warping, numbers, p):
    """The verdict of rules that stop at the first token that is refused.

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1.
    """
    for i in range(len(rows)):
        weigh(rows[i], warping, p[i])
        if rule[0] >= CASCADE:
            mix(rule, p[i], q[i])
        if i == len(tokens):
            break
        if rule[0] == MATCH:
            own = draw(p[i], numbers[i])
            if own != tokens[i]:
                p[i] = 0.0
                p[i, own] = 1.0
                return i, i + 1
        elif numbers[i] * q[i, tokens[i]] >= p[i, tokens[i]]:
            subtract(1.0, p[i], q[i])
            return i, i + 1
    return len(tokens), len(tokens)


@njit(error_model="numpy")
def as_a_block(rows, q, tokens, warping, numbers, p):
    """The verdict of block verification, from the last token to the first.

    Source:
        Sun et al. 2024 (arXiv 2403.10444).
    """
    n = len(tokens)
    chances = np.ones(n + 1)
    for i in range(n + 1):
        weigh(rows[i], warping, p[i])
        if i < n:
            ratio = p[i, tokens[i]] / q[i, tokens[i]]
            chances[i + 1] = min(1.0, chances[i] * ratio)
    kept = n
    while kept:
        if numbers[n - kept] < chances[kept]:
            return kept, n - kept + 1
        kept -= 1
        left = subtract(chances[kept], p[kept], q[kept])
        if left > 0.0:
            left /= left + 1.0 - chances[kept]
        chances[kept] = left
    return 0, n


@njit(error_model="numpy")
def by_threshold(rule, rows, seen, place, tokens, warping, p):
    """How many tokens are likely enough: typical acceptance, and BiLD's rollback.

    Source:
        Cai et al. 2024 (Medusa, arXiv 2401.10774); Kim et al. 2023 (BiLD, arXiv 2302.07863).
    """
    tops, _, sums = seen
    for i in range(len(tokens)):
        weigh(rows[i], warping, p[i])
        if rule[0] == TYPICAL:
            entropy = 0.0
            for mass in p[i]:
                if mass > 0.0:
                    entropy -= mass * math.log(mass)
            if p[i, tokens[i]] <= min(rule[1], rule[2] * math.exp(-entropy)):
                return i
        elif tops[place + i, 0] + sums[place + i] - rows[i, tokens[i]] > rule[1]:
            return i
    weigh(rows[len(tokens)], warping, p[len(tokens)])
    return len(tokens)


@njit(error_model="numpy")
def loosely(rule, rows, q, tokens, warping, numbers, p):
    """The verdict of FLy.

    Source:
        Li et al. 2025 (arXiv 2511.22972).
    """
    threshold, window, n = rule[1], rule[2], len(tokens)
    refused, tests = -1, 0
    for i in range(n):
        weigh(rows[i], warping, p[i])
        if refused >= 0 and i > refused + window:
            refused = -1
        tests += 1
        if numbers[i] * q[i, tokens[i]] < p[i, tokens[i]]:
            continue
        first = refused < 0
        if first:
            refused = i
        if not first or i + window >= n or unsure(p[i]) < threshold:
            subtract(1.0, p[refused], q[refused])
            return refused, tests
    weigh(rows[n], warping, p[n])
    return n, tests


@njit(error_model="numpy")
def unsure(p):
    """The part of p's entropy (V,) that comes from its three largest masses, in nats."""
    a, b, c = 0.0, 0.0, 0.0
    for mass in p:
        if mass > a:
            a, b, c = mass, a, b
        elif mass > b:
            b, c = mass, b
        elif mass > c:
            c = mass
    total = 0.0
    for mass in (a, b, c):
        if mass > 0.0:
            total -= mass * math.log(mass)
    return total


@njit(error_model="numpy")
def subtract(share, p, q):
    """Replace p by max(0, share p - q), unless that is 0 everywhere; returns its sum."""
    more = 0.0
    for x in range(len(p)):
        more += max(0.0, share * p[x] - q[x])
    if more > 0.0:
        for x in range(len(p)):
            p[x] = max(0.0, share * p[x] - q[x])
    return more


@njit(error_model="numpy")
def mix(rule, p, q):
    """Write the mixture that is sampled in place of p, see `decoders.methods.mixtures`."""
    if rule[0] == ENSEMBLE:
        for x in range(len(p)):
            p[x] = rule[1] * p[x] + (1.0 - rule[1]) * q[x]
        return
    top, other, shared = 0.0, 0.0, 0.0
    for x in range(len(p)):
        top, other = max(top, p[x]), max(other, q[x])
        shared += min(p[x], q[x])
    # OPT takes q or p; else each token of q stays that p finds likely enough.
    least, kept = (1.0 - rule[1]) * top, 0.0
    if rule[0] == OPT:
        least = 0.0 if other >= top - rule[1] * (1.0 - shared) else 2.0
    for x in range(len(p)):
        if p[x] >= least:
            kept += q[x]
    for x in range(len(p)):
        stays = q[x] if p[x] >= least else 0.0
        p[x] = stays + max(0.0, 1.0 - kept) * p[x]
