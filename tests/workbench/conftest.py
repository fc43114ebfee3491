"""A tiny pair that writes bytes: its text is full of half emoji, control characters and markup."""

import inspect
import pickle
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import decoders as library
from tests.models import build_pair
from workbench.kinds.batch import Batch
from workbench.kinds.branch import branch
from workbench.kinds.comparison import Comparison
from workbench.kinds.draw import Draw
from workbench.measuring import session
from workbench.measuring.meter import Gauge, Meter
from workbench.runs.events import Ended
from workbench.runs.record import Energy, Run
from workbench.studies.settings import Settings
from workbench.studies.study import Study

DECODERS = ["greedy", "beam_search", "speculative", "mtad", "dsbd"]


@pytest.fixture(scope="session")
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Every byte is one token: é takes two of them, an emoji four."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(["<end>", *alphabet])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


@pytest.fixture(scope="session")
def pair(byte_tokenizer) -> library.ModelPair:
    """A random Llama over bytes, and the same with noise on its weights as its draft."""
    return build_pair(  # without an end: every text goes on to its budget
        torch.float32, byte_tokenizer, eos=[], vocab_size=len(byte_tokenizer)
    )


@pytest.fixture(scope="session")
def unmetered() -> Meter:
    return Meter(Gauge("not measured: a test"))


def finished(pair: library.ModelPair, study: Study, meter: Meter) -> Run:
    *_, ended = session.run(pair, study, meter=meter)
    assert isinstance(ended, Ended)
    return ended.run


@pytest.fixture(scope="session")
def run(pair, unmetered) -> Run:
    """Five decoders, two repeats, at temperature 1; one said something energetic and hostile."""
    asked = {"decoders": DECODERS, "max_new_tokens": 24, "repeats": 2, "timings": 1}
    study = Comparison("<b>é 🦊 ${x} {{{y}}}</b>\n", Settings.from_json(asked))
    found = finished(pair, study, unmetered)
    first, *rest = found.results
    token = replace(first.alone.tokens[0], text="</script><script>alert(1)</script>\x1b[31m")
    tokens = [token, *first.alone.tokens[1:]]
    sample = replace(first.alone, tokens=tokens, text="".join(t.text for t in tokens))
    energy = Energy(1.5, "measured: GPU energy counter", "2.00 s")
    return replace(found, results=[replace(first, samples=[sample], energy=energy), *rest])


@pytest.fixture(scope="session")
def batch_run(pair, unmetered) -> Run:
    """Two decoders that draft, batches of one and two in every scheme, two repeats, T=0. The
    prompts are hostile."""
    texts = ["<b>aba aba</b>", "${x} aba abab", "=1+1 ab", "é 🦊 é 🦊"]
    prompts = {"name": "<i>few</i>", "texts": texts}
    settings = {
        "decoders": ["lookup", "speculative"], "max_new_tokens": 12, "temperature": 0.0,
        "repeats": 2, "timings": 1, "sizes": [1, 2],
    }  # fmt: skip
    return finished(pair, Batch.from_json({"prompts": prompts, "settings": settings}), unmetered)


@pytest.fixture(scope="session")
def draw_run(pair, unmetered) -> Run:
    """Three decoders, one for each kind of comparison, twenty draws each after a hostile prompt."""
    settings = {"decoders": ["multinomial", "dsbd", "mtad"], "draws": 20, "temperature": 0.4}
    asked = {"prompt": "<b>é ${x}</b>", "settings": {**settings, "max_new_tokens": 4}}
    return finished(pair, Draw.from_json(asked), unmetered)


@pytest.fixture(scope="session")
def branch_run(pair, run, unmetered) -> Run:
    """A branch of the second decoder's text, by two decoders."""
    study = branch(pair, run, "beam_search", 3, 5, ["greedy", "mtad"])
    return finished(pair, study, unmetered)


@pytest.fixture
def spaces(monkeypatch):
    """ZeroGPU's module as seen from here: the job runs elsewhere, and all data is pickled."""
    from gradio.context import LocalContext  # where it looks for the visitor

    seen = SimpleNamespace(durations=[], closed=0, crossed=[], visitors=[])

    def GPU(duration):
        def borrow(job):
            def elsewhere(*arguments):
                seen.visitors.append(LocalContext.request.get(None))  # whose seconds they are
                seen.durations.append(duration(*arguments))
                there = pickle.loads(pickle.dumps(arguments))
                seen.crossed.append(there)
                return job(*there)

            def step_by_step(*arguments):
                events = elsewhere(*arguments)
                try:
                    for event in events:
                        yield pickle.loads(pickle.dumps(event))
                finally:
                    seen.closed += 1
                    events.close()

            def at_once(*arguments):
                seen.closed += 1
                return pickle.loads(pickle.dumps(elsewhere(*arguments)))

            # As the module does, too.
            return step_by_step if inspect.isgeneratorfunction(job) else at_once

        return borrow

    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(GPU=GPU))
    return seen
