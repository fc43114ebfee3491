"""The ends of requests: budget, end of sequence, stop string, cancellation, close or error.

Nothing stays behind."""

import gc
import threading
import weakref

import pytest
import torch

from decoders import ModelError, catalog, generate, stream
from decoders.engine.attention.interface import Packing
from decoders.engine.models.packed import PackedModel
from decoders.engine.pack import Idle
from tests.models import build_pair, build_tokenizer
from tests.pairwise import part

PROMPT = [5, 6, 7, 8]
# One of each way of decoding.
SOME = "greedy", "speculative", "mtad", "dsbd", "beam_search", "traversal", "lookup"


@pytest.fixture(scope="module")
def pair():
    return build_pair(tokenizer=build_tokenizer(), eos=None)


@pytest.fixture(scope="module")
def ending():
    """A pair whose texts end soon, and its end tokens."""
    eos = list(range(40, 67))
    return build_pair(tokenizer=build_tokenizer(), eos=eos), eos


@pytest.fixture
def arenas(monkeypatch):
    """Weak references to the cache tensors of every pass, none of which is kept for the next run.

    So whatever is still there is held by something else.
    """
    made = []
    monkeypatch.setattr(Idle, "keep", lambda *_: False)
    call = PackedModel.__call__

    def noting(model, inputs, *features):
        if isinstance(packing := inputs.packing, Packing):
            made.extend(weakref.ref(t) for t in (*packing.keys, *packing.values))
        return call(model, inputs, *features)

    monkeypatch.setattr(PackedModel, "__call__", noting)
    return made


def still_there(arenas):
    """Without a garbage collection: a cache must go at once."""
    assert arenas, "no cache was ever made"
    return [ref for ref in arenas if ref() is not None]


@pytest.mark.parametrize("name", catalog)
@pytest.mark.parametrize("budget", [1, 7])
def test_budget(pair, name, budget):
    result = generate(pair, PROMPT, name, max_new_tokens=budget, ignore_eos=True)
    assert len(result.tokens) == result.metrics.new_tokens == budget
    assert result.finished == "budget"


@pytest.mark.parametrize("name", part(catalog))
def test_end_of_sequence(ending, name):
    """It may come within a block; nothing after it is emitted, counted or shown as text."""
    (pair, eos), ended = ending, 0
    for seed in range(3):
        result = generate(pair, [PROMPT, [3]], name, max_new_tokens=12, seed=10 * seed)[0]
        assert not set(result.tokens[:-1]) & set(eos)
        assert result.finished == ("end of sequence" if result.tokens[-1] in eos else "budget")
        assert result.text == pair.tokenizer.decode([t for t in result.tokens if t not in eos])
        ended += result.finished == "end of sequence"
    assert ended
    ignored = generate(pair, PROMPT, name, max_new_tokens=12, ignore_eos=True)
    assert len(ignored.tokens) == 12


@pytest.mark.parametrize("name", ["greedy", "speculative", "beam_search", "dsbd"])
def test_stop_strings(pair, name):
    """Also one across a token border, in the middle of a block.

    The text ends before it, the tokens with it."""
    whole = generate(pair, PROMPT, name, max_new_tokens=30, temperature=0)
    stop = whole.text[9:11]
    result = generate(
        pair, PROMPT, name, max_new_tokens=30, temperature=0, stop=[stop, "never there"]
    )
    assert result.finished == "stop string"
    assert stop not in result.text
    assert pair.tokenizer.decode(result.tokens).endswith(stop)
    if name != "beam_search":  # ending early changes which beam wins
        assert result.text == whole.text.split(stop)[0]
        assert whole.tokens[: len(result.tokens)] == result.tokens


def test_a_stop_string_of_half_characters():
    """é is two tokens here: neither alone is one, both together stop."""
    tokenizer = build_tokenizer()
    pair = build_pair(tokenizer=tokenizer)
    first, second = tokenizer("é").input_ids
    said = iter([first, second] * 5)
    pair.packed["target"].forward = saying(pair.packed["target"].forward, lambda: next(said))
    result = generate(pair, PROMPT, "greedy", max_new_tokens=9, stop="éé")
    assert result.tokens == [first, second, first, second]
    assert result.text == ""
    assert result.finished == "stop string"


def saying(forward, token):
    """The forward pass of a model that puts all its faith in `token()`."""

    def run(**inputs):
        logits, *features = forward(**inputs)
        logits[:] = 0
        logits[..., token()] = 9
        return logits, *features

    return run


@pytest.mark.parametrize("name", SOME)
def test_cancel_ends_within_a_round(pair, arenas, name):
    """By a function, asked before every pass, and by an event that another thread sets."""
    looks = iter([False] * 5)
    options = {"ignore_eos": True, "max_batch": 1, "cancel": lambda: next(looks, True)}
    results = generate(pair, [PROMPT, [3]], name, **options)
    assert [r.finished for r in results] == ["cancelled", "cancelled"]
    assert results[1].tokens == []
    event, rounds = threading.Event(), 0
    for entry in stream(pair, PROMPT, name, max_new_tokens=400, ignore_eos=True, cancel=event):
        rounds += entry.round is not None
        if rounds == 2 and not event.is_set():
            thread = threading.Thread(target=event.set)
            thread.start()
            thread.join()
    assert rounds == 2
    assert entry.result.finished == "cancelled"
    assert entry.result.tokens
    assert not still_there(arenas)


@pytest.mark.parametrize("name", SOME)
def test_closing_a_stream_frees_the_cache(pair, arenas, name):
    events = stream(pair, [PROMPT, [3], [4]], name, max_new_tokens=50, max_batch=2)
    next(events)
    next(events)
    assert still_there(arenas)
    events.close()
    assert not still_there(arenas)


@pytest.mark.parametrize("name", part([*SOME, "block"], 3))
def test_nothing_waits_for_a_garbage_collection(pair, name):
    """Block and traversal verification left the draft of each round with its distributions, and the
    request, in a circle of references."""
    generate(pair, PROMPT, name, max_new_tokens=12)  # what is made once
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        result = generate(pair, PROMPT, name, max_new_tokens=12)
        gc.collect()
        assert [x for x in gc.garbage if "decoders" in str(getattr(x, "__module__", ""))] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert result.tokens


@pytest.mark.parametrize("role", ["target", "draft"])
def test_an_error_leaves_the_others_alone(role, arenas):
    """A token whose embedding is not a number spoils the request that reads it.

    It is named in a list, raised alone, and freed. The error once kept its traceback, and so the
    cache of the whole batch for as long as the result lived."""
    pair = build_pair()
    method = catalog["speculative"](draft_length=2)
    before = generate(pair, [PROMPT, [3]], method, max_new_tokens=8, temperature=0)
    model = getattr(pair, role)
    bad = 66
    assert not any(bad in r.tokens for r in before)
    with torch.no_grad():
        model.model.embed_tokens.weight[bad] = float("nan")
    prompts = [PROMPT, [1, bad], [3]]
    fine, failed, other = generate(pair, prompts, method, max_new_tokens=8, temperature=0)
    assert [fine.tokens, other.tokens] == [r.tokens for r in before]
    assert fine.error is None
    assert failed.tokens == []
    assert f"{role} model" in str(failed.error)
    assert "at token 1;" in str(failed.error)
    assert not still_there(arenas)
    with pytest.raises(ModelError, match=f"{role} model .* not numbers at token 1"):
        generate(pair, [1, bad], method, max_new_tokens=8, temperature=0)
    assert not still_there(arenas)


def test_finished_places_are_given_on_at_once(pair):
    """With max_batch=2 the third request begins when the first ends; the second goes on."""
    order = [
        (e.request, e.result is not None)
        for e in stream(pair, [PROMPT, [3], [4]], "greedy", max_new_tokens=3, max_batch=2)
    ]
    assert order.index((2, False)) > order.index((0, True))
    ends = build_pair(eos=list(range(20, 67)))
    events = [
        (e.request, e.result is not None)
        for e in stream(ends, [[i] for i in range(8)], "multinomial", max_batch=2)
    ]
    assert {r for r, over in events if over} == set(range(8))
    began = [next(i for i, (r, _) in enumerate(events) if r == n) for n in range(8)]
    assert began == sorted(began)


def test_events_rebuild_the_answer(pair):
    """`keep` and `append` of all events, applied in turn, give the tokens of the result.

    For beams too."""
    for name in catalog:
        texts = {}
        for event in stream(pair, [PROMPT, [3]], name, max_new_tokens=12, seed=5):
            if event.result is None:
                texts[event.request] = [*texts.get(event.request, [])[: event.keep], *event.append]
            else:
                assert texts[event.request] == event.result.tokens
                assert event.keep == len(event.result.tokens)
