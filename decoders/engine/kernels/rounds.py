"""Rounds of drafting and verifying that are made before they are asked for (rounds)."""

import numpy as np
from numba import njit

from decoders.engine.kernels.guess import draw, weigh
from decoders.engine.kernels.program import carry_out
from decoders.engine.kernels.scan import find, note
from decoders.engine.kernels.verdicts import verdict


@njit(error_model="numpy")
def rounds(
    draft, target, pending, judged, drawn, tokens, drafted, kept, ends, rule, warping, numbers,
    place, left, team,
):  # fmt: skip
    """Rounds of the draft model's chain, judged by a rule.

    Row r of the caches holds the token at place r of the text.

    Args:
        draft, target: the two programs: lines, reals, workspace, caches and packs as in
            `carry_out`, and the first row of the request
        pending: the last tokens of the text, those that the draft model has not seen, (1 or 2,);
            the target has not seen the last one
        judged: the target's logits, (rounds, 1 + length, V); for each of these rows the largest
            ones and their ids, (rounds * (1 + length), n), see `find`; and the log of the sum of
            exp(logit - largest)
        drawn: the draft model's logits, (rounds, length, V) or, if the rule needs what follows the
            draft too, (rounds, length + 1, V); and the largest ones with their ids
        tokens: what the target was fed, the last token of the text and the draft after it,
            (rounds, 1 + length)
        drafted: how many tokens the draft of each round has, (rounds,)
        kept: how many of these are kept, (rounds,); -1 of a round whose draft alone was made, up to
            an end token; of those after it, nothing is written
        ends: tokens that end a text
        rule: see `verdict`
        warping: see `weigh`
        numbers: the uniform numbers: of each round those of the draft, of the tests and of the
            target's token
        place: the place of the last token of the text
        left: how many tokens the text can still grow by; the last one of a text is not drafted
        team: that of `decoders.engine.kernels.parts.share`

    Returns:
        the number of rounds that are judged

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1.
    """
    verified, seen, (said, tops, ids) = judged[0], judged[1:], drawn
    length, used, late, one = tokens.shape[1] - 1, 0, np.int64(len(pending) - 1), np.int64(1)
    asked, beyond = said.shape[1], said.shape[1] - length
    p, q = np.empty(verified.shape[1:]), np.empty(said.shape[1:])
    unseen = np.empty(2, np.int64)
    for i in range(len(pending)):
        unseen[i] = pending[i]
    for step in range(len(kept)):
        reach = min(np.int64(length), left - 1)
        drafted[step], kept[step], tokens[step, 0] = reach, -1, unseen[late]
        rows = said[step]
        if reach + beyond:
            after = np.int64(rows.ctypes.data)
            feed(draft, np.int64(unseen.ctypes.data), 1 + late, one, place - late, after, team)
        for i in range(reach + beyond):
            row = step * asked + i
            find(rows[i : i + 1], tops[row : row + 1], ids[row : row + 1])
            weigh(rows[i], warping, q[i])
            if i == reach:
                break
            token = draw(q[i], numbers[used + i])
            tokens[step, 1 + i] = token
            if token in ends:
                drafted[step] = i + 1
                return step
            if i + 1 < reach + beyond:
                fed = np.int64(tokens[step, 1 + i :].ctypes.data)
                after = np.int64(rows[1 + i].ctypes.data)
                feed(draft, fed, one, one, place + 1 + i, after, team)
        used += reach
        rows = verified[step, : 1 + reach]
        fed, after = np.int64(tokens[step].ctypes.data), np.int64(rows.ctypes.data)
        feed(target, fed, 1 + reach, 1 + reach, place, after, team)
        note(rows, seen, step * (1 + length))
        draft_tokens = tokens[step, 1 : 1 + reach]
        count, tests = verdict(rule, rows, q, draft_tokens, warping, numbers[used:], p)
        token = draw(p[count], numbers[used + tests])
        kept[step], used = count, used + tests + 1
        left -= count + 1
        place += count + 1
        if left == 0 or token in ends:
            return step + 1
        # The draft model has seen the last token of its draft only if it was asked what follows.
        late = np.int64(count == reach and not beyond)
        unseen[0] = tokens[step, reach]
        unseen[late] = token
    return len(kept)


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
