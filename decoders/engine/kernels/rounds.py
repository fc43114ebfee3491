"""Rounds of drafting and verifying that are made before they are asked for (rounds)."""

import numpy as np
from numba import njit

from decoders.engine.kernels.guess import doubted, draw, weigh
from decoders.engine.kernels.program import carry_out
from decoders.engine.kernels.scan import note
from decoders.engine.kernels.verdicts import verdict


@njit(error_model="numpy")
def rounds(
    draft, target, pending, judged, drawn, tokens, counts, ends, rule, doubt, warping, numbers,
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
            exp(logit - largest). Nothing is written to the rows after a short draft
        drawn: of the draft model the same, with `length` rows a round, or 1 + length if the rule
            needs what follows the draft, too
        tokens: what the target was fed, the last token of the text and the draft after it,
            (rounds, 1 + length)
        counts: of each round the passes of the draft model, the tokens of its draft, and how many
            of these are kept, (rounds, 3). If a draft comes to an end token, its round is not
            judged: -1 tokens are kept, and nothing is written of the rounds after it
        ends: tokens that end a text
        rule: see `verdict`
        doubt: see `doubted`
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
    verified, seen, said, heard = judged[0], judged[1:], drawn[0], drawn[1:]
    length, used, late, one = tokens.shape[1] - 1, 0, np.int64(len(pending) - 1), np.int64(1)
    beyond, p, q = said.shape[1] - length, np.empty(verified.shape[1:]), np.empty(said.shape[1:])
    unseen = np.empty(2, np.int64)
    for i in range(len(pending)):
        unseen[i] = pending[i]
    for step in range(len(counts)):
        reach, asked, drafted, ended = min(np.int64(length), left - 1), 0, 0, False
        tokens[step, 0], rows = unseen[late], said[step]
        while asked < reach + beyond and not ended:
            after, row = np.int64(rows[asked].ctypes.data), step * said.shape[1] + asked
            if asked:
                fed = np.int64(tokens[step, asked:].ctypes.data)
                feed(draft, fed, one, one, place + asked, after, team)
            else:
                fed = np.int64(unseen.ctypes.data)
                feed(draft, fed, 1 + late, one, place - late, after, team)
            note(rows[asked : asked + 1], heard, row)
            weigh(rows[asked], warping, q[asked])
            asked += 1
            if drafted == reach or doubted(rows[drafted], heard, row, doubt):
                break
            token = draw(q[drafted], numbers[used + drafted])
            drafted += 1
            tokens[step, drafted] = token
            ended = token in ends
        counts[step, 0], counts[step, 1], counts[step, 2] = asked, drafted, -1
        if ended:
            return step
        used += drafted
        n, row = np.int64(1 + drafted), step * (1 + length)
        rows, tested = verified[step, :n], tokens[step, 1:n]
        fed, after = np.int64(tokens[step].ctypes.data), np.int64(rows.ctypes.data)
        feed(target, fed, n, n, place, after, team)
        note(rows, seen, row)
        kept, tests = verdict(rule, rows, seen, row, q, tested, warping, numbers[used:], p)
        token = draw(p[kept], numbers[used + tests])
        counts[step, 2], used = kept, used + tests + 1
        left -= kept + 1
        place += kept + 1
        # The target has read a token that was refused and is then drawn: nobody asks for it again.
        again = kept < drafted and token == tokens[step, 1 + kept]
        if left == 0 or token in ends or again:
            return step + 1
        late = np.int64(kept == asked)  # whether the draft model has not seen the last one kept
        unseen[0] = tokens[step, kept]
        unseen[late] = token
    return len(counts)


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
