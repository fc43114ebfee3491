import dataclasses
import math

import pytest

import decoders
from decoders.catalog import catalog
from decoders.errors import InputError
from decoders.methods import family, speculative
from decoders.sampling import SeededSource
from decoders.theory import mtad_kept_length
from decoders.trace import Fate
from decoders.warp import Warping
from tests.models import VOCABULARY, build_pair, build_tokenizer
from tests.oracle import Rows, Situation, assert_exact, decode, distance, drawn

END = frozenset({2})
LOOP = (0, 1, 2, 0, 1)
TREES = [
    catalog["spectr"](drafts=2, draft_length=2),
    catalog["spectr"](drafts=3, draft_length=1),
    catalog["specinfer"](expansion=(2, 1)),
    catalog["specinfer"](expansion=(1, 2)),
    catalog["specinfer"](expansion=(3,)),
    catalog["mcss"](expansion=(2, 1)),
    catalog["mcss"](expansion=(1, 2)),
    catalog["mcss"](expansion=(3,)),
]
NO_MODEL = [
    catalog["lookup"](),
    catalog["lookup"](prefer="first"),
    catalog["ngram"](),
    catalog["ngram"](order="unigram"),
]


@pytest.mark.parametrize("method", TREES, ids=repr)
@pytest.mark.parametrize(
    "situation",
    [drawn(2, 1), drawn(3, 2, budget=2), drawn(3, 3, warping=Warping(0.7, 2)), drawn(3, 4, budget=2, end=END)],
)
def test_several_drafts_leave_the_targets_law(method, situation):
    assert_exact(method, situation)


@pytest.mark.parametrize("method", NO_MODEL, ids=repr)
@pytest.mark.parametrize("warping", [Warping(), Warping(0.7, 2)])
def test_drafts_without_a_model_leave_the_targets_law(method, warping):
    situation = drawn(3, 5, budget=4, warping=warping, end=END, prompt=LOOP, references=((0, 1, 1, 2), (2, 2, 0)))
    assert_exact(method, situation)
    assert any(entry.drafted for entry in decode(method, situation, SeededSource(0)).rounds)


def test_children_taken_for_draws_fail_the_check(monkeypatch):
    """SpecInfer's rule on the k likeliest children with the softmax for q, as some code has it."""

    def likeliest(source, q, count):
        return q.topk(count).indices.tolist()

    monkeypatch.setattr(family, "tree", lambda r, expansion: TREE(r, expansion, sample=likeliest))
    assert distance(catalog["specinfer"](expansion=(2,)), drawn(3, 2, budget=2)) > 0.01


TREE = family.tree


def test_one_draft_of_each_is_speculative_decoding():
    """Token for token with the same seed: the same draws in the same order."""
    for seed in range(8):
        situation = drawn(4, seed, budget=12)
        plain = decode(catalog["speculative"](draft_length=3), situation, SeededSource(seed)).output
        for method in (
            catalog["spectr"](drafts=1, draft_length=3),
            catalog["specinfer"](expansion=(1, 1, 1)),
            catalog["mcss"](expansion=(1, 1, 1)),
        ):
            assert decode(method, situation, SeededSource(seed)).output == plain


def test_candidates_as_many_as_the_support_are_always_accepted():
    for seed in range(6):
        r = decode(catalog["mcss"](expansion=(4,)), drawn(4, seed, budget=20), SeededSource(seed))
        assert not any(t.fate == Fate.CORRECTED for entry in r.rounds for t in entry.trials)


def test_equal_drafts_are_one_node_and_several_trials():
    sure = Rows(((0.0, 1.0),))
    for name in ("spectr", "specinfer"):
        r = decode(catalog[name](), Situation(sure, sure, budget=6), SeededSource(0))
        entry = r.rounds[0]
        first = [t for t in entry.trials if t.parent == r.tree.prompt_length - 1]
        assert [t.fate for t in first] == [Fate.ACCEPTED, *[Fate.DISCARDED] * (len(first) - 1)]
        assert len({t.node for t in first}) == 1
        assert entry.target_calls == 1
        assert len(entry.tokens) == 5


@pytest.mark.parametrize("name", ["spectr", "specinfer", "mcss", "typical", "lookup", "ngram"])
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_drafts_fit_the_budget_and_end_with_the_text(name, budget):
    for seed in range(4):
        situation = drawn(3, seed, budget=budget, end=END, prompt=LOOP)
        r = decode(catalog[name](), situation, SeededSource(seed))
        deepest = max(r.tree.depths) - len(LOOP) + 1
        assert deepest <= budget
        assert not any(r.tree.tokens[p] in END and p >= len(LOOP) for p in r.tree.parents[len(LOOP) :])


# ---- Lenience


@pytest.mark.parametrize("name", ["lookup", "ngram"])
def test_lenience_takes_the_claim_away_and_accepts_more(name):
    exact, lenient = catalog[name](), catalog[name](lenience=0.2)
    assert exact.lossless
    assert not lenient.lossless
    situation = drawn(3, 1, budget=200, prompt=LOOP)
    kept = [sum(e.accepted for e in decode(m, situation, SeededSource(0)).rounds) for m in (exact, lenient)]
    assert kept[1] > kept[0]


@pytest.mark.parametrize(("lenience", "output"), [(0.4, (2, 2)), (0.6, (1, 2))])
def test_a_copied_token_of_half_the_likelihood_of_the_best_passes_a_lenience_below_half(lenience, output):
    """At temperature 0: p(x) >= l max p on the raw target; the copy says 2 where the target prefers 1 two to one."""
    target = Rows((*[(0.1, 0.6, 0.3)] * 4, (0.0, 0.1, 0.9)))
    situation = Situation(target, target, budget=2, warping=Warping(temperature=0), prompt=(0, 2, 1, 0))
    assert decode(catalog["lookup"](match=1, lenience=lenience), situation, SeededSource(0)).output == output


def test_lenience_1_on_a_copy_is_the_exact_rule():
    situation = drawn(3, 2, prompt=LOOP)
    assert distance(catalog["lookup"](lenience=1.0), situation) < 1e-12
    lossy = dataclasses.replace(catalog["lookup"](), lenience=0.5)
    assert distance(lossy, situation, law="target") > 0.01


# ---- On a real model

PAIR = build_pair(tokenizer=build_tokenizer(("the", "cat")))
REPEATING = [5, 9, 3, 7, 1, 8] * 6
ALL = [catalog[n]() for n in ("spectr", "specinfer", "mcss", "typical", "lookup", "ngram")]


@pytest.mark.parametrize("method", [*ALL, catalog["lookup"](prefer="first")], ids=lambda m: m.name)
def test_at_temperature_0_they_are_greedy_on_a_real_model(method):
    options = {"max_new_tokens": 40, "temperature": 0.0}
    ours, greedy = (decoders.generate(PAIR, REPEATING, m, **options) for m in (method, "greedy"))
    assert ours.tokens == greedy.tokens
    assert ours.metrics.target_calls <= greedy.metrics.target_calls
    assert ours.metrics.drafted


def test_requests_of_a_batch_propose_different_numbers_of_tokens_and_decode_as_alone():
    prompts = [REPEATING, [1, 2, 3], [4] * 9, [7, 8, 9, 7, 8]]
    options = {"max_new_tokens": 16, "temperature": 0.6, "seed": 5}
    for name in ("lookup", "ngram", "specinfer", "spectr", "mcss"):
        batch = decoders.generate(PAIR, prompts, name, **options)
        alone = [decoders.generate(PAIR, p, name, **{**options, "seed": 5 + i}) for i, p in enumerate(prompts)]
        assert [r.tokens for r in batch] == [r.tokens for r in alone]
        if name == "lookup":
            assert len({r.rounds[0].drafted for r in batch}) > 1


def test_a_reference_that_holds_the_output_is_copied():
    plain = decoders.generate(PAIR, "the cat", "greedy", max_new_tokens=24)
    helped = decoders.generate(
        PAIR, "the cat", catalog["lookup"](references=["the cat" + plain.text]), max_new_tokens=24, temperature=0.0
    )
    unaided = decoders.generate(PAIR, "the cat", "lookup", max_new_tokens=24, temperature=0.0)
    assert helped.tokens == unaided.tokens == plain.tokens
    assert helped.metrics.target_calls < unaided.metrics.target_calls


# ---- Settings


@pytest.mark.parametrize("name", ["specinfer", "mcss"])
@pytest.mark.parametrize("given", [(3, 2, 1), [3, 2, 1], "3,2,1", " 3, 2 ,1 "])
def test_an_expansion_is_a_sequence_or_a_text(name, given):
    method = catalog[name](expansion=given)
    assert method.expansion == (3, 2, 1)
    assert hash(method) == hash(catalog[name](expansion=(3, 2, 1)))


@pytest.mark.parametrize("given", [(), "", "3,,1", "3;2", (3, 0), (2, -1), (1.5,), (True,), 3, None, "a", ("3",)])
def test_an_expansion_that_is_none_is_refused(given):
    with pytest.raises(InputError, match="specinfer: expansion must be whole numbers of 1 or more, as 3,2,1,1, not"):
        catalog["specinfer"](expansion=given)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("specinfer", {"expansion": (8, 8, 8)}),
        ("mcss", {"expansion": (1,) * 513}),
        ("mcss", {"expansion": "99999999999999999999"}),
        ("spectr", {"drafts": 64, "draft_length": 64}),
    ],
)
def test_a_tree_too_large_is_refused(name, settings):
    with pytest.raises(InputError, match=f"{name}: more than 512 draft tokens a round are too many; take fewer"):
        catalog[name](**settings)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("spectr", {"drafts": 0}),
        ("spectr", {"draft_length": 0}),
        ("typical", {"epsilon": 1.5}),
        ("typical", {"delta": -0.1}),
        ("lookup", {"match": 0}),
        ("lookup", {"copy": 0}),
        ("lookup", {"prefer": "best"}),
        ("lookup", {"lenience": 0}),
        ("ngram", {"smoothing": 0}),
        ("ngram", {"order": "trigram"}),
    ],
)
def test_settings_out_of_range_are_refused(name, settings):
    (setting,) = settings
    with pytest.raises(InputError, match=f"{name}: {setting} must be"):
        catalog[name](**settings)


@pytest.mark.parametrize("name", ["lookup", "ngram"])
class TestReferences:
    def test_one_text_or_several(self, name):
        assert catalog[name](references="a text").references == ("a text",)
        assert catalog[name](references=["a", "b"]).references == ("a", "b")

    @pytest.mark.parametrize(("given", "n"), [("", 1), (["a", " \n"], 2)])
    def test_an_empty_one_is_refused(self, name, given, n):
        with pytest.raises(InputError, match=f"Reference document {n} is empty; give it some text or leave it out"):
            catalog[name](references=given)

    @pytest.mark.parametrize("given", [7, [7], [b"bytes"], None])
    def test_what_is_no_text_is_refused(self, name, given):
        with pytest.raises(InputError, match="references must be texts, not"):
            catalog[name](references=given)

    def test_they_need_a_tokenizer(self, name):
        with pytest.raises(InputError, match="Reference documents need a tokenizer; this pair has none"):
            decoders.generate(build_pair(), [1, 2], catalog[name](references="a"))


def test_no_draft_model_is_needed_to_look_up_or_count():
    alone = decoders.ModelPair(PAIR.target, None, None)
    for name in ("lookup", "ngram"):
        out = decoders.generate(alone, REPEATING, name, max_new_tokens=4)
        assert out.metrics.draft_calls == 0
        assert max(out.tokens) < VOCABULARY


# ---- Drafts that adapt


@pytest.mark.parametrize("confidence", [0.4, 0.6, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_a_draft_that_stops_where_it_hesitates_leaves_the_targets_law(confidence, seed):
    situation = drawn(3, seed, warping=Warping(0.8, 2), end=END)
    assert_exact(catalog["speculative"](draft_length=2, confidence=confidence), situation)


def test_its_length_follows_the_confidence():
    sure_once = Rows(((0.05, 0.95), (0.05, 0.95), (0.4, 0.6)))  # behind one token and two, not behind three
    r = decode(catalog["speculative"](confidence=0.7), Situation(sure_once, sure_once, budget=9), SeededSource(0))
    assert [entry.drafted for entry in r.rounds[:3]] == [2, 0, 0]


def test_a_draft_that_stops_by_what_it_drew_fails_the_check(monkeypatch):
    """A tempting way to stop: drop a drawn token that looks unlikely. What is left was then not drawn from q."""

    def choosy(request, length, predict):
        draft = yield from CHAIN(request, length, predict)
        unlikely = [i for i, d in enumerate(draft.draws) if draft.q[d.parent][d.token] < 0.5]
        draft.draws = draft.draws[: min(unlikely, default=length)]
        return draft

    monkeypatch.setattr(speculative, "chain", choosy)
    assert distance(catalog["speculative"](draft_length=1), drawn(3, 2, budget=2)) > 0.01


CHAIN = speculative.chain


# ---- MTAD on copied drafts: q = 1, so a copy is kept as far as the target finds it jointly likelier than the threshold


def copying(threshold: float, **settings):
    return catalog["mtad"](draft="lookup", threshold=threshold, **settings)


@pytest.mark.parametrize("seed", range(3))
def test_mtad_on_copies_is_multinomial_at_threshold_1_and_greedy_at_temperature_0(seed):
    situation = drawn(3, seed, budget=4, warping=Warping(0.7, 2), end=END, prompt=LOOP)
    assert_exact(copying(1.0), situation, law="target")
    situation = dataclasses.replace(situation, warping=Warping(temperature=0), budget=8)
    greedy = decode(catalog["greedy"](), situation, SeededSource(0)).output
    assert decode(copying(0.1), situation, SeededSource(0)).output == greedy


@pytest.mark.parametrize("ratio", ["warped", "raw"])
@pytest.mark.parametrize("threshold", [0.0, 0.02, 0.2])
def test_mtad_keeps_the_longest_copy_above_the_threshold_and_no_shorter_than_the_bound(threshold, ratio):
    kept_any = False
    for seed in range(12):
        r = decode(copying(threshold, ratio=ratio), drawn(3, seed, budget=12, prompt=LOOP), SeededSource(seed))
        for entry in r.rounds:
            copied = [t.p for t in entry.trials if t.fate in (Fate.ACCEPTED, Fate.REJECTED)]
            joint = [math.prod(copied[: i + 1]) for i in range(len(copied))]
            assert entry.accepted == max((i + 1 for i, x in enumerate(joint) if x > threshold), default=0)
            if copied and not any(t.token in r.end_tokens for t in entry.trials):
                U = -math.log(min(copied))
                assert entry.accepted >= mtad_kept_length(threshold, U, len(copied))
            kept_any |= entry.accepted > 0
    assert kept_any


def test_mtad_on_copies_needs_no_draft_model():
    assert catalog["mtad"]().uses_draft
    assert not copying(0.1).uses_draft
    alone = decoders.ModelPair(PAIR.target, None, None)
    assert decoders.generate(alone, REPEATING, copying(0.1), max_new_tokens=8).metrics.drafted
