"""Whole decoders on random float64 models: transformers' tokens, and the same in any batch."""

import math
from dataclasses import replace

import pytest
import torch

from decoders import ModelPair, catalog, generate
from decoders.engine.passes import PackedPasses
from decoders.trace import DRAFTED
from tests.elsewhere import Elsewhere, Here
from tests.models import VOCABULARY, build, build_both, build_pair, by_transformers, plain_logits
from tests.pairwise import EVERYWHERE, pairwise, part

PROMPT = [5, 6, 7, 8]
PROMPTS = [
    [5, 6, 7, 8], [3], [9] * 12, list(range(20, 40)), [1, 2], [60, 3, 3], [11],
    [40, 41, 42, 43, 44],
]  # fmt: skip


@pytest.fixture(scope="module")
def pair():
    return build_pair()


@pytest.fixture(scope="module")
def ending():
    """A pair whose texts end soon."""
    return build_pair(eos=[0, 1, 2])


def beam_score(model, prompt, tokens, penalty):
    """The score by which `generate` ranks finished beams."""
    return sum(log_ps(model, prompt, tokens)) / len(tokens) ** penalty


def log_ps(model, prompt, tokens):
    """The log-probability of each new token, by one plain pass."""
    with torch.inference_mode():
        whole = torch.tensor([prompt + tokens])
        logits = model(whole, use_cache=False).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)[range(len(tokens)), tokens].tolist()


@pytest.mark.parametrize(
    ("penalty", "early_stopping", "name"),
    part(
        pairwise(
            [1.0, 2.0, -1.0], [False, True, "never"], ["beam_search", "speculative_beam_search"]
        )
    ),
)
def test_beam_search_is_generate(name, early_stopping, penalty):
    """With and without ends of sequence (many of them, so that beams end early).

    Scores are kept in float32, so a case in which the two answers score the same to 1e-5 decides
    nothing and another prompt is drawn."""
    generator = torch.Generator().manual_seed(3)
    decided = 0
    model, draft = build_both(initializer_range=0.15)
    pair = ModelPair(model, draft)
    for beams in (2, 3, 5):
        for eos in (None, [7, 30, 31, 32]):
            model.generation_config.eos_token_id = eos
            for _ in range(2):
                prompt = torch.randint(VOCABULARY, (3,), generator=generator).tolist()
                options = {"length_penalty": penalty, "early_stopping": early_stopping}
                theirs = by_transformers(model, prompt, 14, eos, num_beams=beams, **options)
                method = catalog[name](beams=beams, **options)
                ours = generate(pair, prompt, method, max_new_tokens=14).tokens
                gap = abs(
                    beam_score(model, prompt, ours, penalty)
                    - beam_score(model, prompt, theirs, penalty)
                )
                if ours != theirs and gap < 1e-5:
                    continue
                assert ours == theirs, (prompt, beams, eos, gap)
                decided += 1
    assert decided >= 10


@pytest.mark.parametrize(("stopping", "penalty"), [(False, 2.0), (True, -1.0), ("never", 1.0)])
def test_one_beam_is_generate(stopping, penalty):
    """`generate` with one beam is greedy and ends at the first end of sequence.

    Ours ran past it if a longer text scored better."""
    model = build()
    model.generation_config.eos_token_id = eos = list(range(20))
    method = catalog["beam_search"](beams=1, early_stopping=stopping, length_penalty=penalty)
    results = generate(ModelPair(model, None), PROMPTS, method, max_new_tokens=14)
    theirs = [by_transformers(model, p, 14, eos, num_beams=1) for p in PROMPTS]
    assert [r.tokens for r in results] == theirs
    assert any(len(r.tokens) < 14 for r in results)


@pytest.mark.parametrize(
    "name", part(n for n, m in catalog.items() if m.law and not (m.law.mixed or m.law.certain))
)
def test_temperature_zero_is_greedy(pair, name):
    """Every lossless decoder, and beam sampling whose draws coincide there."""
    greedy = generate(pair, PROMPTS, "greedy", max_new_tokens=33, ignore_eos=True)
    for result, reference in zip(
        generate(pair, PROMPTS, name, max_new_tokens=33, temperature=0, ignore_eos=True),
        greedy,
        strict=True,
    ):
        assert result.tokens == reference.tokens


# One of each way of judging drafts.
SOME = "speculative", "mtad", "dsbd", "specinfer", "traversal", "cascade", "bild", "mtjd"


@pytest.mark.parametrize("name", catalog if EVERYWHERE else part(SOME))
def test_alone_or_in_any_batch(ending, name):
    """The same seeds alone, in a batch of 8 and in another order.

    Also with places passed on (max_batch=3), and with chunked prompts."""
    pair, method = ending, catalog[name]()
    options = {"max_new_tokens": 12, "top_k": 20, "top_p": 0.95}
    alone = [generate(pair, p, method, seed=7 + i, **options).tokens for i, p in enumerate(PROMPTS)]
    assert [r.tokens for r in generate(pair, PROMPTS, method, seed=7, **options)] == alone
    assert [
        r.tokens for r in generate(pair, PROMPTS, method, seed=7, max_batch=3, **options)
    ] == alone
    order = [3, 1, 7, 0, 5, 2, 6, 4]
    shuffled = [PROMPTS[i] for i in order]
    results = generate(
        pair, shuffled, method, seed=[7 + i for i in order], prefill_chunk=5, **options
    )
    assert [r.tokens for r in results] == [alone[i] for i in order]
    assert [r.metrics.prefill_calls > 0 for r in results] == [len(p) > 5 for p in shuffled]


@pytest.mark.parametrize("name", part(catalog))
def test_perplexity_and_trace_are_the_plain_models(pair, name):
    """log p, alternatives and perplexity of the output are those of a separate forward pass."""
    options = {"max_new_tokens": 20, "seed": 1, "top_k": 20, "ignore_eos": True}
    result = generate(pair, PROMPT, catalog[name](), **options)
    expected = log_ps(pair.target, PROMPT, result.tokens)
    assert [t.token for t in result.trials] == result.tokens
    assert [t.log_p for t in result.trials] == pytest.approx(expected, abs=1e-9)
    perplexity = math.exp(-sum(expected) / len(expected))
    assert result.metrics.perplexity == pytest.approx(perplexity, rel=1e-9)
    for i, trial in enumerate(result.trials):
        p = plain_logits(pair.target, PROMPT + result.tokens[:i]).softmax(-1).topk(5)
        assert [a[0] for a in trial.alternatives] == p.indices.tolist()
        assert [a[1] for a in trial.alternatives] == pytest.approx(p.values.tolist(), abs=1e-9)


@pytest.mark.parametrize("name", SOME)
def test_a_draft_on_a_device_of_its_own(pair, name, monkeypatch):
    """Rules that compare p and q bring them to one device; DSBD and MTAD expected one."""
    options = {"max_new_tokens": 12, "seed": 3, "ignore_eos": True}
    together = generate(pair, PROMPTS[:3], name, **options)
    run = PackedPasses.run

    def elsewhere(engine, wants, chunk=None, features=()):
        answers = run(engine, wants, chunk, features)
        device = Elsewhere if engine.model.role == "draft" else Here
        return [replace(a, rows=a.rows.as_subclass(device)) for a in answers]

    monkeypatch.setattr(PackedPasses, "run", elsewhere)
    apart = generate(pair, PROMPTS[:3], name, **options)
    assert [r.tokens for r in apart] == [r.tokens for r in together]


@pytest.mark.parametrize("name", ["speculative", "specinfer", "dsbd"])
def test_tokens_of_each_pass(pair, name, monkeypatch):
    """A target pass takes one token and its draft of each unfinished request.

    Nothing is padded or fed twice. Some rules may draw as the correction the very token they
    refused: it was fed with the draft, and is not fed again.

    Source:
        Ni et al. 2024, EMS-SD (arXiv 2405.07542)
    """
    fed = []
    forward = pair.packed["target"].forward

    def counting(input_ids, **others):
        fed.append(input_ids.shape[1])
        return forward(input_ids=input_ids, **others)

    monkeypatch.setattr(pair.packed["target"], "forward", counting)
    prompts = PROMPTS[:4]
    # else their rounds begin with several beams
    settings = {"dsbd": {"keep_one": True}}
    method = catalog[name](**settings.get(name, {}))
    results = generate(pair, prompts, method, max_new_tokens=10, ignore_eos=True, seed=3)
    rounds = [r.rounds for r in results]
    expected = [sum(len(p) - 1 for p in prompts)] + [0] * (max(map(len, rounds)) - 1)
    for entries in rounds:
        refused: set[int] = set()
        tip = None
        for i, entry in enumerate(entries):
            drafted = {t.node for t in entry.trials if t.fate in DRAFTED}
            expected[i] += (tip not in refused) + len(drafted)
            refused, tip = drafted, entry.nodes[-1]
    assert fed == expected
