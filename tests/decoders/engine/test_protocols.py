"""Any object that fits `Model` can draft: here one that reads the target's hidden states."""

import pytest
import torch

from decoders import InputError, ModelPair, catalog, generate
from decoders.distribution import Warping
from decoders.engine.protocols import Answer, Passes
from decoders.testing import Drawn, distance
from decoders.testing.situations import HeadTable, Situation
from tests.heads import drafts_for
from tests.models import VOCABULARY, build

PROMPTS = [5, 6, 7, 8], [3], list(range(20, 40))
TAKING_DRAFTS = "speculative", "mtad", "dsbd", "specinfer", "speculative_beam_search", "best_first"


class Guess:
    """A draft: the target's own head on its last known hidden state.

    The state is turned a little for each token after it."""

    name, engine_name, packed, why = "draft model Guess", "packed passes", True, ""
    vocabulary, positions, row_bytes, weight_bytes, copied_bytes = VOCABULARY, None, 0, 0, 0
    device, dtype = torch.device("cpu"), torch.float64

    def __init__(self, target, reads=(-1,)):
        self.head, self.reads, self.passes = (
            target.get_output_embeddings().weight.detach(),
            reads,
            [],
        )

    def engine(self, rows=0, most_rows=None):
        self.passes.append(GuessPasses(self))
        return self.passes[-1]

    def refuse_features(self, layers):
        raise InputError("It has none.")


class GuessPasses(Passes):
    def __init__(self, model):
        self.model, self.reads, self.known, self.told = model, model.reads, {}, {}

    def admit(self, tree, rows):
        self.known[tree] = {}
        return True

    def release(self, tree):
        if tree in self.known:
            self.told[tree] = self.known.pop(tree)

    def rows_of(self, tree):
        return len(self.known[tree])

    def learn(self, tree, features):
        self.known[tree] |= {node: features.at(node)[0] for node in features.nodes}

    def run(self, wants, chunk=None, features=()):
        rows = torch.cat(
            [torch.stack([self.logits(tree, node) for node in nodes]) for tree, nodes in wants]
        )
        answers, start = [], 0
        for _, nodes in wants:
            answers.append(Answer(rows, slice(start, start := start + len(nodes)), 0, 0))
        return answers

    def logits(self, tree, node):
        guessed = []
        # decoders draft before the target's first pass: any proposal is valid
        if not self.known[tree]:
            return torch.zeros(VOCABULARY, dtype=torch.float64)
        while node not in self.known[tree]:
            guessed.append(tree.tokens[node])
            node = tree.parents[node]
        return (self.model.head @ self.known[tree][node]).roll(sum(guessed))


@pytest.fixture(scope="module")
def pair():
    target = build()
    return ModelPair(target, Guess(target))


@pytest.mark.parametrize("name", TAKING_DRAFTS)
def test_every_decoder_takes_it(pair, name):
    """In a batch, with prompts in chunks, each request gets the tokens that it gets alone."""
    drafts_for(pair, name, PROMPTS)


def test_it_is_told_of_every_token_that_the_target_sees(pair):
    """The prompt included, each time with the state that the target has there."""
    (result,) = generate(
        pair, [PROMPTS[2]], "speculative", max_new_tokens=8, prefill_chunk=7, temperature=0
    )
    text = [*PROMPTS[2], *result.tokens]
    with torch.inference_mode():
        states = pair.target(torch.tensor([text]), output_hidden_states=True).hidden_states[-1][0]
    ((tree, told),) = pair.draft.passes[-1].told.items()
    path = tree.lineage(tree.trunk[-1])
    assert len(path) >= len(text) - 1
    for place, node in enumerate(path[:-1]):
        torch.testing.assert_close(told[node], states[place])


@pytest.mark.parametrize(
    ("name", "settings"), [("block", {"draft_length": 2}), ("mcss", {"expansion": (2,)})]
)
def test_the_law_on_tables(name, settings):
    """The oracle's models have hidden states too, so decoders with such drafts are enumerated."""
    situation = Situation(
        Drawn(3, 0),
        HeadTable(3, 1),
        budget=3,
        warping=Warping(0.7, 2, 0.9),
        features=(Drawn(2, 7),),
    )
    assert distance(catalog[name](**settings), situation) < 1e-9


def test_a_layer_that_the_target_has_not_is_named():
    target = build()
    with pytest.raises(InputError, match="has hidden states 0 to 2, and 9 was asked for"):
        ModelPair(target, Guess(target, reads=(9,)))
