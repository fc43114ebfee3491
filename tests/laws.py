"""The law of a decoder's output on real models: every text, every way the decoder can go.

Through the loop and the engines."""

import itertools
from dataclasses import fields
from typing import Any

import torch
from transformers import LogitsProcessorList, PreTrainedModel

from decoders import ModelPair, catalog
from decoders.distribution import Warping
from decoders.generate import Batching, Sampling, Task, prepare
from decoders.loop import Loop
from decoders.settings import Method
from decoders.testing import oracle, situations


class Rounded(oracle.Branches):
    """Takes distributions that sum to one but for float32's rounding."""

    def draw(self, probs, count=1):
        outcomes = list(probs.items())
        total = sum(p for _, p in outcomes)
        assert abs(total - 1) < 1e-6
        return [self.branch([(token, p / total) for token, p in outcomes]) for _ in range(count)]


def enumerated(
    pair: ModelPair, prompt: list[int], method: Method, **sampling: Any
) -> situations.Chances:
    """The probability of every output; `sampling` as in `decoders.generate`."""
    cuts = {f.name: sampling.pop(f.name) for f in fields(Warping) if f.name in sampling}
    settings = Sampling(**sampling, warping=Warping(**cuts))

    def run(source: oracle.Branches) -> situations.Path:
        task = Task.read(
            pair, prompt, method, settings, Batching(), clock=itertools.count().__next__
        )
        (turn,), engines = prepare(task)
        turn.request.source = source
        with Loop(engines) as loop:
            loop.add(turn)
            while loop.turns:
                loop.step()
        return tuple(turn.request.tree.new_tokens(turn.request.answer))

    law: situations.Chances = {}
    for probability, text in oracle.outcomes(run, source=Rounded):
        law[text] = law.get(text, 0.0) + probability
    return law


def has_the_targets_law(pair: ModelPair, method: Method) -> None:
    """Two tokens of a decoder have the law of the target's own samples."""
    given: dict[str, Any] = {"max_new_tokens": 2, "top_k": 2}
    law = enumerated(pair, [5, 6], method, **given)
    expected = enumerated(ModelPair(pair.target, None), [5, 6], catalog["multinomial"](), **given)
    assert set(law) == set(expected)
    assert all(abs(law[text] - expected[text]) < 1e-9 for text in law)


def of_two_tokens(
    target: PreTrainedModel,
    prompt: list[int],
    temperature: float = 1.0,
    processors: tuple = (None, None),
) -> situations.Chances:
    """The probability of every two tokens after a prompt by the target alone.

    `processors` change the logits of the first and second."""
    law: situations.Chances = {}
    for a, p in enumerate(next_token(target, prompt, temperature, processors[0])):
        for b, q in enumerate(next_token(target, [*prompt, a], temperature, processors[1])):
            law[a, b] = p * q
    return law


def next_token(
    target: PreTrainedModel,
    text: list[int],
    temperature: float,
    processors: LogitsProcessorList | None,
) -> list[float]:
    ids = torch.tensor([text])
    with torch.inference_mode():
        row = target(ids, use_cache=False).logits[:, -1]
        row = row if processors is None else processors(ids, row)
        return (row[0].double() / temperature).softmax(-1).tolist()
