"""MTAD, its rule on scripted drafts, and MTJD."""

import dataclasses
import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from decoders.distribution import Warping
from decoders.errors import InputError
from decoders.methods.baselines import Greedy
from decoders.methods.catalog import catalog
from decoders.methods.mtad import MTAD, joint_ratios, keep_longest, log_probabilities
from decoders.reading import Readings
from decoders.request import SeededSource
from decoders.testing.oracle import Branches, Watched, assert_exact, decode, output_law, ways
from decoders.testing.situations import (
    WHOLE,
    Rows,
    Situation,
    ancestral,
    beam_states,
    drawn,
    log_likelihood,
    logits,
    variation,
    warp,
)
from decoders.theory import mtad_kept_length
from decoders.trace import Fate
from tests.pairwise import pairwise

NEVER = -math.inf


def judge(
    p, q, threshold, *, warped=True, warping=WHOLE, rule=keep_longest, end=frozenset(), path=None
):
    """The trials for a draft, given the probability rows of target and draft.

    Its tokens are 0 unless `path` gives others."""
    path = path or [0] * len(q)
    request = Watched([0], source=Branches(), warping=warping, budget=20, end_tokens=end)
    nodes, node = [], request.tip
    for token in path:
        node = request.tree.add(node, token)
        nodes.append(node)
    rows = [list(Readings(torch.tensor(x, dtype=torch.float64).log(), 2)) for x in (p, q)]
    logs = (log_probabilities(request, x, nodes, warped) for x in rows)
    return rule(request, nodes, rows[0], *logs, threshold)[0]


def two(*probs):
    return [[x, 1 - x] for x in probs]


def kept(*args, **options):
    return sum(t.fate == Fate.ACCEPTED for t in judge(*args, **options))


def test_the_longest_passing_prefix_is_kept_though_a_shorter_one_failed():
    """r = 0.2, 0.05, 0.4, 0.1: prefixes 1 and 3 pass 0.15, and 3 is kept."""
    p, q = two(0.1, 0.2, 0.8, 0.1, 0.5), two(0.5, 0.8, 0.1, 0.4)
    trials = judge(p, q, 0.15)
    assert [t.accept_probability for t in trials[:4]] == pytest.approx([0.2, 0.05, 0.4, 0.1])
    assert [t.fate for t in trials] == [*[Fate.ACCEPTED] * 3, Fate.REJECTED, Fate.CORRECTED]
    assert [(t.p, t.q) for t in trials[:4]] == [
        pytest.approx(x) for x in [(0.1, 0.5), (0.2, 0.8), (0.8, 0.1), (0.1, 0.4)]
    ]
    assert trials[4].parent == trials[2].node


NON_MONOTONE = two(0.1, 0.2, 0.8, 0.1, 0.5), two(0.5, 0.8, 0.1, 0.4), 0.15


def test_a_length_is_kept_and_no_token():
    """Algorithm 1 prints `eta <- j`, a token instead of a length.

    Source:
        Qin et al. 2024, Optimized multi-token joint decoding (arXiv 2407.09722), algorithm 1
    """
    cases = [NON_MONOTONE, (two(0.1, 0.5), two(0.9), 0.5)]
    assert [kept(*case) for case in cases] + [judge(*cases[1])[-1].parent] == [3, 0, 0]


def test_threshold_0_keeps_a_draft_whose_ratio_is_below_the_smallest_float():
    """Bug: the ratio was compared as a number, and e^-1000 is 0: a possible draft was refused.

    Now it is compared in logs."""
    p, q = two(*[1e-200] * 4, 0.5), two(*[0.9] * 4)
    assert kept(p, q, 0.0) == 4


def test_impossible_tokens_in_either_model():
    """p = 0 fails this and every longer prefix, also if q is 0; q = 0 < p counts as a factor of
    1."""
    log_p = [-1.0, -2.0, NEVER, -1.0]
    assert joint_ratios(log_p, [-1.5, NEVER, -1.0, -9.0]) == [0.5, 0.5, NEVER, NEVER]
    assert joint_ratios(log_p, [-1.5, -2.0, NEVER, NEVER]) == [0.5, 0.5, NEVER, NEVER]


def test_warping_decides_which_probabilities_are_compared():
    """Top-k 1 makes the target certain of token 0 and the draft of token 1.

    Token 0 has warped p = 1, q = 0."""
    p, q = [[0.6, 0.4], [0.5, 0.5]], [[0.3, 0.7]]
    (trial, _) = judge(p, q, 0.5, warping=Warping(top_k=1))
    assert (trial.p, trial.q, trial.fate) == (1, 0, Fate.ACCEPTED)
    (trial, _) = judge(p, q, 0.5, warping=Warping(top_k=1), warped=False)
    assert (trial.p, trial.q) == pytest.approx((0.6, 0.3))


def test_an_end_token_kept_at_the_end_is_the_last_token():
    trials = judge(two(*[0.9] * 3), [[0.9, 0.1], [0.1, 0.9]], 0.0, path=[0, 1], end=frozenset({1}))
    assert [t.fate for t in trials] == [Fate.ACCEPTED] * 2


@given(st.data(), st.floats(0.01, 0.99), st.integers(1, 6))
def test_theorem_3_6_bounds_the_kept_length_from_below(data, threshold, length):
    probs = st.lists(st.floats(0.05, 0.95), min_size=length, max_size=length)
    p, q = two(*data.draw(probs), 0.5), two(*data.draw(probs))
    rows = zip(p, q, strict=False)
    U = max(abs(math.log(a / b)) for x, y in rows for a, b in zip(x, y, strict=True))
    assume(U == 0 or abs(math.log(1 / threshold) / U % 1) > 1e-6)
    assert kept(p, q, threshold) >= mtad_kept_length(threshold, U, length)


END = frozenset({2})


def conditional(model, path, token, situation, ratio):
    row = logits(model, path)
    law = warp(row, situation.warping) if ratio == "warped" else row.softmax(-1).tolist()
    return law[token]


def searched(drafting, width, steps):
    """Beam search of the draft model: the likeliest `width` continuations of the live beams.

    Beams that end are set aside."""
    live, ended = [drafting.prompt], []
    for _ in range(steps):
        V = len(logits(drafting.target, drafting.prompt))
        candidates = sorted(
            ((*b, x) for b in live for x in range(V)), key=lambda b: -log_likelihood(drafting, b)
        )[:width]
        ended += [b for b in candidates if b[-1] in drafting.end]
        live = [b for b in candidates if b[-1] not in drafting.end]
    return {(tuple(live), tuple(ended)): 1.0}


def restated(method, situation):
    """MTAD restated, step by step.

    Source:
        Qin et al. 2024, Optimized multi-token joint decoding (arXiv 2407.09722), algorithm 1
    """
    law = Counter()

    def go_on(path, probability):
        new = path[1:]
        if len(new) == situation.budget or (new and new[-1] in situation.end):
            law[new] += probability
            return
        steps = min(method.draft_length, situation.budget - len(new) - 1)
        drafting = Situation(
            situation.draft, None, warping=situation.warping, end=situation.end, prompt=path
        )
        if method.draft == "sample":
            states = beam_states(drafting, situation.warping, method.beams, steps)
        else:
            states = searched(drafting, method.beams, steps)
        for (live, ended), chance in states.items():
            draft = max([*ended, *live], key=lambda b: log_likelihood(drafting, b))
            kept, ratio, possible = 0, 1.0, True
            for j in range(len(path), len(draft)):
                p, q = (
                    conditional(m, draft[:j], draft[j], situation, method.ratio)
                    for m in (situation.target, situation.draft)
                )
                possible = possible and p > 0
                ratio *= p / q if q > 0 else 1.0
                if possible and min(1.0, ratio) > method.threshold:
                    kept = j + 1 - len(path)
            after = draft[: len(path) + kept]
            if kept and after[-1] in situation.end:
                go_on(after, probability * chance)
            else:
                for token, p in enumerate(warp(logits(situation.target, after), situation.warping)):
                    if p > 0:
                        go_on((*after, token), probability * chance * float(p))

    go_on(situation.prompt, 1.0)
    return law


@pytest.mark.parametrize(("draft", "ratio", "threshold", "warping"), pairwise(
    ["sample", "search"], ["warped", "raw"], [0.0, 0.4], [Warping(0.7, 2), Warping(1.3, 0, 0.7)]
), ids=repr)  # fmt: skip
def test_the_output_has_the_law_of_a_plain_restatement(draft, ratio, threshold, warping):
    method = MTAD(2, 2, threshold, ratio, draft)
    for seed, end in ((1, frozenset()), (2, END)):
        situation = drawn(3, seed, warping=warping, end=end)
        assert variation(output_law(method, situation), restated(method, situation)) < 1e-9, (
            method,
            situation,
        )


@pytest.mark.parametrize("draft", ["sample", "search"])
@pytest.mark.parametrize("ratio", ["warped", "raw"])
class TestLimits:
    def test_threshold_0_keeps_everything_that_the_target_can_write(self, draft, ratio):
        for _, r in ways(MTAD(2, 2, 0.0, ratio, draft), drawn(2, 2)):
            assert all(e.accepted == e.drafted for e in r.rounds)

    def test_equal_models_keep_everything(self, draft, ratio):
        table = drawn(2, 3).target
        for _, r in ways(MTAD(2, 2, 0.999, ratio, draft), Situation(table, table)):
            assert all(e.accepted == e.drafted for e in r.rounds)


def test_the_draft_is_the_beam_of_highest_raw_joint_q_and_ended_beams_compete():
    """With two beams searched, the ended one is the draft.

    End token 2 has q = 0.4, the likeliest pair 0.6 * 0.5 = 0.3."""
    q = Rows(((0.6, 0.0, 0.4), (0.5, 0.5, 0.0)))
    r = decode(MTAD(2, 2, 0.0, draft="search"), Situation(q, q, budget=5, end=END), SeededSource(0))
    assert (r.output, r.finished) == ((2,), "end of sequence")


def test_beams_are_warped_once_as_a_flattened_joint_and_ranked_by_raw_q():
    """With T = 0 the draft is the draft model's greedy path."""
    situation = drawn(4, 1, budget=5, warping=Warping(0))
    r = decode(MTAD(4, 3), situation, SeededSource(0))
    path = situation.prompt
    for t in r.rounds[0].trials[:4]:
        assert t.token == int(logits(situation.draft, path).argmax())
        path = (*path, t.token)


def test_the_papers_perplexity_bounds_on_models_without_memory():
    """Without memory, everything in lemma 3.4 and theorem 3.5 is known.

    A round keeps the likeliest draft token k times over and adds one of the target's own. The lemma
    is then an equality."""
    p, q, tau, gamma = (0.5, 0.3, 0.2), (0.7, 0.2, 0.1), 0.4, 4
    method = MTAD(gamma, 2, tau, "raw", "search")
    lengths, log_p, log_q, chance = 0.0, 0.0, 0.0, 0.0
    for probability, r in ways(method, Situation(Rows((p,)), Rows((q,)), budget=gamma + 1)):
        first = r.rounds[0]
        chance += probability
        lengths += probability * len(first.tokens)
        log_p += probability * sum(math.log(p[t]) for t in first.tokens)
        log_q += probability * sum(math.log(q[t]) for t in first.tokens)
    assert lengths == pytest.approx(3)  # 0.5 / 0.7 squared is above 0.4, cubed it is not
    H_pq = -sum(a * math.log(b) for a, b in zip(p, q, strict=True))
    H_p = -sum(a * math.log(a) for a in p)
    U = max(abs(math.log(a / b)) for a, b in zip(p, q, strict=True))
    assert math.exp(-log_q / lengths) == pytest.approx(
        math.exp((H_pq - 2 * math.log(0.7)) / lengths)
    )
    exact_joint = 1 / max(p)
    bound = math.exp((H_p + (1 + lengths) * U - math.log(tau)) / lengths)
    assert math.exp(-log_p / lengths) / exact_joint <= bound


def test_a_round_is_traced_with_the_ratio_as_its_chance():
    r = decode(MTAD(3, 2, 0.3), drawn(3, 1, budget=9), SeededSource(2))
    for e in r.rounds:
        ratio = 1.0
        for t in e.trials[: e.drafted]:
            ratio *= t.p / t.q
            assert t.accept_probability == pytest.approx(min(1, ratio))
            assert t.fate in (Fate.ACCEPTED, Fate.REJECTED)
        assert e.tested == e.drafted


# ---- On copied drafts: q = 1, so the prefix of a copy is kept that the target finds jointly
# likelier than the threshold

LOOP = (0, 1, 2, 0, 1)


def copying(threshold: float, **settings):
    return MTAD(draft="lookup", threshold=threshold, **settings)


def test_mtad_on_copies_is_multinomial_at_threshold_1_and_greedy_at_temperature_0():
    situation = drawn(3, 1, budget=4, warping=Warping(0.7, 2), end=END, prompt=LOOP)
    assert_exact(copying(1.0), situation, law="target")
    situation = dataclasses.replace(situation, warping=Warping(temperature=0), budget=8)
    greedy = decode(Greedy(), situation, SeededSource(0)).output
    assert decode(copying(0.1), situation, SeededSource(0)).output == greedy


mtjd = catalog["mtjd"]


def run(method, situation):
    return decode(method, situation, SeededSource(0))


def likeliest(situation) -> tuple[int, ...]:
    """The likeliest of all outputs: those that end, and those as long as the budget."""
    V = range(situation.target.V)
    outputs = [o for n in range(1, situation.budget + 1) for o in itertools.product(V, repeat=n)]
    whole = [
        o
        for o in outputs
        if not any(t in situation.end for t in o[:-1])
        and (len(o) == situation.budget or o[-1] in situation.end)
    ]
    return max(whole, key=lambda o: log_likelihood(situation, (*situation.prompt, *o)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("end", [frozenset(), frozenset({2})])
def test_exact_over_the_whole_length_is_the_likeliest_sequence(seed, end):
    situation = drawn(3, seed, budget=4, end=end)
    assert run(mtjd(block_length=4, exact=True), situation).output == likeliest(situation)


def test_blocks_are_committed_one_after_the_other():
    situation = drawn(4, 3, budget=5)
    r = run(mtjd(block_length=2, exact=True), situation)
    assert [len(entry.nodes) for entry in r.rounds] == [2, 2, 1]
    first = max(
        itertools.product(range(4), repeat=2),
        key=lambda o: log_likelihood(situation, (*situation.prompt, *o)),
    )
    assert r.output[:2] == first
    assert {t.fate for entry in r.rounds for t in entry.trials} == {Fate.SEARCHED}
    total = sum(t.log_p for entry in r.rounds for t in entry.trials)
    assert total == pytest.approx(log_likelihood(situation, (*situation.prompt, *r.output)))


def test_sampling_with_one_beam_is_ancestral_sampling():
    for seed, warping in enumerate([Warping(), Warping(0.7, 2)]):
        situation = drawn(3, seed, warping=warping)
        law = output_law(mtjd(block_length=2, beams=1, form="sample"), situation)
        assert variation(law, ancestral(situation, warping)) < 1e-12


def test_too_many_sequences_are_refused_before_any_work():
    with pytest.raises(
        InputError,
        match=r"exact would try 10\*\*6 sequences, more than 100000; take a smaller block",
    ):
        mtjd(block_length=6, exact=True).refuse(vocabulary=10, budget=64)
    mtjd(block_length=64, exact=True).refuse(vocabulary=10, budget=2)
    # the budget counts
    assert run(mtjd(block_length=64, exact=True), drawn(10, 0, budget=2)).output
