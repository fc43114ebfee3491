"""The claims of every decoder of the catalog, checked by enumeration.

A decoder, a rule or a source of drafts that is added later is checked without a line here.
EVERYWHERE=1 takes every variant of every rule with every variant of every source, whether a model
or a head drafts; otherwise each rule and each source is taken once with small settings."""

import contextlib
import dataclasses

import pytest

from decoders.distribution import Warping
from decoders.errors import InputError
from decoders.methods.catalog import catalog
from decoders.methods.named import RULES, SOURCES
from decoders.request import SeededSource
from decoders.settings import Method
from decoders.testing.oracle import TooManyWays, assert_exact, decode
from decoders.testing.situations import Drawn, Rows, Situation, drawn
from tests.pairwise import EVERYWHERE
from tests.pieces import HeadTable

END = frozenset({2})
GREEDY = Warping(temperature=0)

# A lossy decoder has no law of its own, but at the limits of its settings it has one:
# (settings, warping, law).
LIMITS = {
    "beam_search": [
        ({"beams": 1}, GREEDY, "target"),
        *(
            ({"beams": n, "early_stopping": early}, Warping(), "beam search")
            for n in (1, 2, 3)
            for early in (False, True, "never")
        ),
    ],
    "bild": [
        ({"fallback": 1.1}, Warping(0.7, 2, 0.9), "target"),
        ({"rollback": 0.0, "draft_length": 2}, GREEDY, "target"),
    ],
    "fly": [({}, GREEDY, "target")],
    "mtjd": [({"block_length": 1}, GREEDY, "target")],
    "typical": [({}, GREEDY, "target")],
    "mtad": [
        ({"threshold": 1.0, "beams": 2}, Warping(0.7, 2, 0.9), "target"),
        ({}, GREEDY, "target"),
    ],
}

# Settings that show more of a decoder than one field changed at a time does.
MORE = {
    "speculative": [{"draft_length": n} for n in (2, 3)],
    "dsbd": [
        {"draft_beams": 2, "beams": 2, "draft_length": 2},
        {"draft_beams": 3, "beams": 2, "draft_length": 1},
        {"draft_beams": 3, "width_threshold": 0.5, "min_beams": 2},
        {"draft_beams": 2, "beams": 2, "keep_one": True},
    ],
    "speculative_beam_search": [
        {"draft_length": n, "beams": 2, "draft_beams": width, "draft": draft}
        for n, width, draft in ((1, 2, "model"), (2, 2, "head"), (2, 3, "model"))
    ],
}


def small(method: type[Method], name: str) -> dict:
    """A value for each setting that keeps the number of ways small: whole numbers of at most 2."""
    fields = dataclasses.fields(method)
    values = {f.name: min(2, f.default) for f in fields if type(f.default) is int}
    return {k: v for k, v in values.items() if k != name}


def variations(method: type[Method]) -> list[Method]:
    """The decoder by default, and with each setting in turn at other choices and its lowest
    value."""
    settings = [{}, *MORE.get(method.name, [])]
    for field in dataclasses.fields(method):
        choices, low = field.metadata["choices"], field.metadata["low"]
        values = [*choices, *([low] if low is not None else [])]
        settings += [{**small(method, field.name), field.name: value} for value in values]
    made = []
    for s in settings:
        with contextlib.suppress(InputError):  # a rule and a draft that do not fit
            made.append(method(**s))
    return list(dict.fromkeys(made))


# From few ways to many; a decoder is checked on as many of them as it has not too many ways to go.
SITUATIONS = [
    drawn(3, 1, budget=2, warping=Warping(0.7, 2), end=END),
    drawn(4, 0, budget=4, warping=GREEDY, end=END),
    drawn(2, 2, warping=Warping(0.7, 3, 0.9), end=frozenset({1})),
    drawn(3, 3, warping=Warping(0.7, 2), end=END),
    drawn(3, 12, budget=2, warping=Warping(0.8, min_p=0.4), end=END),
    drawn(3, 13, budget=2, warping=Warping(1.4, 0, 0.9, 0.25, 1.6, temperature_last=True)),
    drawn(2, 4),
    drawn(3, 5, warping=Warping(1.5, 0, 0.8)),
    drawn(3, 6, warping=Warping(1.5, 0, 0.9), end=END),
    drawn(3, 7),
    drawn(3, 8, budget=4, end=END),
]
CLAIMED = [m for cls in catalog.values() for m in variations(cls) if m.law]


@pytest.mark.parametrize("method", CLAIMED, ids=repr)
def test_each_decoder_has_the_law_it_declares(method):
    for i, situation in enumerate(SITUATIONS):
        try:
            assert_exact(method, situation, limit=1200 if EVERYWHERE else 400 if i == 0 else 100)
        except TooManyWays:
            assert i, f"{method!r} has too many ways to go to be checked: give it smaller settings"
            break


@pytest.mark.parametrize("method", CLAIMED, ids=repr)
def test_each_decoder_has_its_law_on_whole_distributions(method):
    """As of a large vocabulary without top-k: those of these small ones are all small."""
    assert_exact(method, SITUATIONS[0], whole=True)


# ---- Every rule with every source, whoever drafts

# Small settings of the sources, the first of each in any case, the others with EVERYWHERE=1.
DRAFTS = {
    "model": (
        "model(draft_length=2)", "model(draft_length=auto)", "model(draft_length=1)",
        "model(draft_length=2, confidence=0.6)", "model(draft_length=2, gate=0.6)",
        "model(draft_length=2, confidence=2)"),
    "head": (
        "head(draft_length=2)", "head(draft_length=auto)", "head(draft_length=1)",
        "head(draft_length=2, confidence=0.6)", "head(draft_length=2, gate=0.6)"),
    "paths": ("paths(drafts=2, draft_length=2)", "paths(drafts=3, draft_length=1)"),
    "tree": ("tree(expansion=2,1)", "tree(expansion=1,2)", "tree(expansion=3)"),
    "distinct": ("distinct(expansion=2,1)", "distinct(expansion=1,2)", "distinct(expansion=3)"),
    "ngram": ("ngram(draft_length=2)", "ngram(draft_length=2, order=unigram)"),
    "lookup": ("lookup(copy=2)", "lookup(copy=2, prefer=first)"),
    "suffix": ("suffix(copy=3)", "suffix(copy=4, shape=tree)"),
    "suffix, else head": (
        "suffix, else head(copy=2, sure=1, draft_length=1)",
        "suffix, else head(copy=2, sure=2, draft_length=2)"),
    "best_first": (
        "best_first(nodes=3, depth=2)", "best_first(nodes=3, depth=2, by=head)",
        "best_first(nodes=3, depth=2, by=ngram)"),
    "recycling": ("recycling(nodes=3, depth=2)",),
}  # fmt: skip
JUDGES = {
    "cascade": (
        "cascade", "cascade(defer=opt)", "cascade(defer=opt, alpha=1)", "cascade(alpha=0)"),
    "ensemble": ("ensemble", "ensemble(weight=1)"),
    "fly": ("fly(window=1)",),
    "tokenwise": ("tokenwise", "tokenwise(lenience=0.5)"),
}  # fmt: skip
LOOP: tuple[int, ...] = (0, 1, 0)  # so that copies and counts know something
PLACES = [
    {"warping": Warping(0.7, 2), "end": END, "prompt": LOOP, "references": ((0, 1, 2, 1, 0),)},
    {"warping": Warping(1.3, 0, 0.9), "budget": 4, "prompt": LOOP},
    {"warping": GREEDY, "prompt": LOOP},
    {"prompt": LOOP},
]


def headed(V: int, seed: int, **options) -> Situation:
    """As `drawn`, but what drafts is a head: its q depends on where the round began."""
    states = (Drawn(2, 7),)
    return Situation(Drawn(V, 2 * seed), HeadTable(V, 2 * seed + 1), features=states, **options)


def combined() -> list[Method]:
    """A decoder of each rule and each source that it judges."""
    most = None if EVERYWHERE else 1
    found = []
    for rule in RULES:
        for source in SOURCES:
            for judge in JUDGES.get(rule, (rule,))[:most]:
                for draft in DRAFTS.get(source, (source,))[:most]:
                    with contextlib.suppress(InputError):
                        found.append(catalog["speculative"](rule=judge, draft=draft))
    return found


@pytest.mark.parametrize("method", combined(), ids=lambda m: f"{m.rule} of {m.draft}")
def test_every_rule_has_the_law_that_it_claims_with_every_source(method):
    """Cascade and ensemble claimed a mixture's law of a head's drafts, and were off by 0.05.

    A head may also stand in the draft model's place, but then no mixture is stated."""
    makers = (drawn, headed)
    if method.uses_head:
        makers = (headed,)
    elif method.law and method.law.mixed:
        makers = (drawn,)
    for make in makers:
        for options in PLACES if EVERYWHERE else PLACES[:1]:
            situation = make(3 if "end" in options else 2, 2, **options)
            if method.law:
                assert_exact(method, situation, limit=60_000)
            else:
                decode(method, situation, SeededSource(0))


@pytest.mark.parametrize("method", [m for m in CLAIMED if m.lossless and m.uses_draft], ids=repr)
def test_a_head_in_the_draft_models_place_changes_no_law(method):
    situation = headed(3, 1, budget=2, warping=Warping(0.7, 2), end=END)
    assert_exact(method, situation, limit=20_000)


@pytest.mark.parametrize("name", catalog)
@pytest.mark.parametrize(
    "warping", [Warping(0.8, 3), Warping(1.2, 0, 0.8), Warping(0.9, 0, 1.0, 0.2, 1.8)], ids=repr
)
def test_small_and_whole_distributions_give_the_same_tokens(name, warping):
    """One uniform number draws one token from both forms, and every rule decides alike on both."""
    for seed in range(2):
        situation = drawn(7, seed, budget=10, warping=warping, end=END, prompt=(0, 1, 2, 0, 1))
        few, whole = (
            decode(catalog[name](), situation, SeededSource(seed), whole=w) for w in (False, True)
        )
        assert few.output == whole.output
        for a, b in zip(few.rounds, whole.rounds, strict=True):
            assert [(t.token, t.fate) for t in a.trials] == [(t.token, t.fate) for t in b.trials]
            assert [t.p or 0.0 for t in a.trials] == pytest.approx([t.p or 0.0 for t in b.trials])


@pytest.mark.parametrize("name", catalog)
def test_every_decoder_is_checked_by_its_law_or_at_its_limits(name):
    checked = {m.name for m in CLAIMED} | {n for n, limits in LIMITS.items() if limits}
    assert name in checked, f"{name} declares no law; add what it becomes at a limit to LIMITS"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("method", "warping", "law"),
    [(catalog[n](**s), w, law) for n, limits in LIMITS.items() for s, w, law in limits],
    ids=repr,
)
def test_lossy_decoders_are_exact_at_their_limits(method, warping, law, seed):
    assert_exact(method, drawn(3, seed, warping=warping, end=END), law=law)


@pytest.mark.parametrize("name", catalog)
def test_token_0_is_an_ordinary_token(name):
    """Published code crashes when token 0 is drawn.

    Here target and draft want nothing else, and it is the prompt too."""
    only_0 = Rows(((1 - 2e-13, 1e-13, 1e-13),))
    situation = Situation(only_0, only_0, budget=4, warping=Warping(top_p=0.9))
    assert decode(catalog[name](), situation, SeededSource(0)).output == (0, 0, 0, 0)


@pytest.mark.parametrize("name", catalog)
def test_an_end_token_in_the_prompt_ends_nothing(name):
    likely_0 = Rows(((0.98, 0.01, 0.01),))
    law = catalog[name]().law
    draft = likely_0 if law and law.mixed else Drawn(3, 0)  # a mixture writes what its draft does
    situation = Situation(likely_0, draft, warping=GREEDY, end=END, prompt=(2, 0, 2))
    assert decode(catalog[name](), situation, SeededSource(0)).output == (0, 0, 0)


def test_an_unknown_decoder_is_refused_with_the_nearest_name():
    with pytest.raises(
        InputError, match=r"There is no decoder 'specualtive': did you mean 'speculative'\?"
    ):
        catalog["specualtive"]
    assert "specualtive" not in catalog
    assert list(catalog)[:7] == [
        "greedy", "multinomial", "beam_search", "beam_sampling", "speculative", "mtad", "dsbd",
    ]  # fmt: skip


@pytest.mark.parametrize("method", catalog.values())
def test_each_decoder_says_what_it_is(method):
    assert method.paper
    assert method.section
    assert method.summary.endswith(".")
    assert method().lossless == (method.law not in (None, "cascade", "ensemble"))
    assert catalog[method.name] is method


def test_lenience_takes_the_claim_away():
    assert catalog["speculative"].law == "target"
    assert not catalog["speculative"](lenience=0.5).lossless
