"""Rounds of speculative sampling that are made before they are asked for (rounds)."""

import numpy as np
from numba import njit

from decoders.engine.kernels.guess import draw, weigh
from decoders.engine.kernels.program import carry_out


@njit(error_model="numpy")
def rounds(
    draft, target, drafted, asked, before, judged, drawn, tokens, kept, ends, warping, numbers,
    place, left, team,
):  # fmt: skip
    """Rounds of the draft model's chain, judged token by token.

    Each is guessed from the logits of the one before. Row r of the caches holds the token at place
    r of the text.

    Args:
        draft, target: the two programs: lines, reals, workspace, caches and packs as in
            `carry_out`, and the first row of the request
        drafted: the draft tokens of the round that is over, (length,)
        asked: the draft model's logits from which they were drawn, (length, V)
        before: the target's logits of that round, (1 + length, V)
        judged: the target's logits, (rounds, 1 + length, V)
        drawn: those of the draft model, (rounds, length, V)
        tokens: what the target was fed, the last token of the text and the draft after it,
            (rounds, 1 + length)
        kept: how many draft tokens of the round before are in the text of each, (rounds,); -1 of
            those that are not begun
        ends: tokens that end a text
        warping: see `weigh`
        numbers: the uniform numbers: of each round those of the tests and of the target's token,
            and of the next one those of the draft
        place: the place of the last token that the text had in the round that is over
        left: how many tokens the text could still grow by in that round
        team: that of `decoders.engine.kernels.parts.share`

    Returns:
        the number of rounds made; none is in which the draft is shorter, or the text ends, but the
            draft of one more may have been begun, up to an end token

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1.
    """
    length, used = len(drafted), 0
    known, rows = drafted.copy(), before
    p, q = np.empty(before.shape[1]), np.empty(asked.shape)
    pair, one = np.empty(2, np.int64), np.int64(1)
    for i in range(length):
        weigh(asked[i], warping, q[i])
    for step in range(len(kept)):
        count = 0
        while True:
            weigh(rows[count], warping, p)
            if count == length:
                break
            token = known[count]
            used += 1
            if numbers[used - 1] * q[count, token] >= p[token]:
                subtract(p, q[count])
                break
            count += 1
        token = draw(p, numbers[used])
        left -= count + 1
        place += count + 1
        if left <= length or token in ends:
            return step
        kept[step] = count
        tokens[step, 0] = token
        # The draft model has not seen the last token of its draft.
        pair[0], pair[1] = known[length - 1], token
        late = np.int64(count == length)
        fed = np.int64(pair.ctypes.data) + 8 * (1 - late)
        feed(draft, fed, 1 + late, one, place - late, np.int64(drawn[step].ctypes.data), team)
        for i in range(length):
            weigh(drawn[step, i], warping, q[i])
            token = draw(q[i], numbers[used + 1 + i])
            tokens[step, i + 1] = known[i] = token
            if token in ends:
                return step
            if i + 1 < length:
                fed = np.int64(tokens[step, i + 1 :].ctypes.data)
                after = np.int64(drawn[step, i + 1].ctypes.data)
                feed(draft, fed, one, one, place + 1 + i, after, team)
        used += 1 + length
        rows = judged[step]
        fed, after = np.int64(tokens[step].ctypes.data), np.int64(rows.ctypes.data)
        feed(target, fed, 1 + length, 1 + length, place, after, team)
    return len(kept)


@njit(error_model="numpy")
def subtract(p, q):
    """Leave of p what it has more than q; all of it if that is nothing."""
    more = 0.0
    for i in range(len(p)):
        more += max(0.0, p[i] - q[i])
    if more > 0.0:
        for i in range(len(p)):
            p[i] = max(0.0, p[i] - q[i])


@njit
def feed(model, tokens, n, count, place, logits, team):
    """A pass of tokens that follow one another, the last of which want logits.

    Args:
        model: the program
        tokens: their address
        n: their number
        count: how many of them want logits
        place: the place of the first
        logits: the address of the logits, (count, V)
        team: see `rounds`
    """
    lines, reals, space, caches, packs, base = model
    packing = np.empty(2 * n + 7 + count, np.int64)
    for i in range(n):
        packing[i], packing[n + i] = place + i, base + place + i
    segment, wanted = packing[2 * n : 2 * n + 7], packing[2 * n + 7 :]
    segment[0], segment[1], segment[2], segment[3] = 0, n, base, place
    segment[4], segment[5], segment[6] = -1, -1, place
    for i in range(count):
        wanted[i] = n - count + i
    pack, answers, line = packs.copy(), np.empty(1, np.int64), np.int64(packing.ctypes.data)
    pack[0, 0], pack[0, 1], pack[0, 2] = line + 8 * n, line + 16 * n, 1
    answers[0] = logits
    carry_out(
        lines, reals, np.int64(space.ctypes.data), answers, tokens, line, line + 16 * n + 56, n,
        count, caches, pack, team,
    )  # fmt: skip
    packing[:1] = 0  # it lives until here
