"""The open loop: requests of all decoders and settings get the tokens that they get alone.

They come, share passes and are cancelled."""

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders import ModelPair, catalog, generate
from decoders.distribution import Warping
from decoders.generate import Batching, Sampling, Task, prepare
from decoders.loop import Loop
from tests.models import build_pair

PROMPTS = [5, 6, 7, 8], [3], list(range(20, 40)), [9] * 12
PENALTIES = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2}


@pytest.fixture(scope="module")
def pair():
    pair = build_pair()
    pair.target.generation_config.update(**PENALTIES)
    return pair


@dataclass
class Asked:
    """One request of a mixture; `arrives` and `leaves` are steps of the loop."""

    decoder: str
    prompt: list[int]
    arrives: int
    leaves: int | None
    sampling: Sampling

    def turn(self, pair: ModelPair):
        task = Task.read(
            pair,
            self.prompt,
            self.decoder,
            self.sampling,
            Batching(),
            clock=itertools.count().__next__,
        )
        (turn,), _ = prepare(task)
        return turn


samplings = st.builds(
    Sampling,
    max_new_tokens=st.integers(1, 9),
    seed=st.integers(0, 99),
    warping=st.builds(
        Warping,
        temperature=st.sampled_from([0.0, 0.7, 1.0, 1.4]),
        top_k=st.sampled_from([0, 1, 5, 30]),
        top_p=st.sampled_from([0.5, 0.9, 1.0]),
    ),
    penalties=st.booleans(),
)
mixtures = st.lists(
    st.builds(
        Asked, st.sampled_from(list(catalog)), st.sampled_from(PROMPTS), st.integers(0, 12),
        st.none() | st.integers(1, 20), samplings,
    ),
    min_size=1,
    max_size=7,
)  # fmt: skip


def tokens_of(turn):
    tree = turn.request.tree
    return tree.new_tokens(turn.request.answer)


def decoded_together(pair, mixture, **options):
    """The turns, at the end of a loop in which each came and went as it was to."""
    engines = {role: model.engine() for role, model in pair.packed.items()}
    turns = [asked.turn(pair) for asked in mixture]
    over = []
    with Loop(engines, **options) as loop:
        for step in itertools.count():
            for asked, turn in zip(mixture, turns, strict=True):
                if asked.arrives == step:
                    loop.add(turn)
                if (
                    asked.leaves is not None
                    and asked.arrives + asked.leaves == step
                    and turn in loop.turns
                ):
                    loop.cancel(turn)
            over += [turn for turn, entry in loop.step() if entry is None]
            if step > 32 and not loop.turns:
                break
    assert not any(engine.caches for engine in engines.values())  # all rows came back
    ended = [t for t in turns if t.request.finished != "cancelled"]
    assert sorted(map(id, over)) == sorted(map(id, ended))
    return turns


@given(mixtures, st.sampled_from([None, 1, 3]), st.sampled_from([None, 5]))
@settings(max_examples=25)
def test_each_gets_the_tokens_that_it_gets_alone(pair, mixture, max_batch, prefill_chunk):
    """Temperatures of a pass were once those of its first request.

    A request that looks at few tokens got those of another."""
    options = {"max_batch": max_batch, "prefill_chunk": prefill_chunk}
    for asked, turn in zip(mixture, decoded_together(pair, mixture, **options), strict=True):
        sampling = dict(vars(asked.sampling))
        sampling |= vars(sampling.pop("warping"))
        alone = generate(pair, asked.prompt, asked.decoder, **sampling)
        found = tokens_of(turn)
        if turn.request.finished == "cancelled":
            searched = "beam" in asked.decoder  # whose text may change until its end
            assert searched or found == alone.tokens[: len(found)]
        else:
            assert (found, turn.request.finished) == (alone.tokens, alone.finished)
