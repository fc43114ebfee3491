"""Compiled passes: the tokens of eager ones, and nothing is compiled once a pair is loaded.

Preparing passes in bad places is here, too."""

import json
import os
import subprocess
import sys

import pytest
import torch
from torch._dynamo.utils import counters

from decoders import catalog, generate, load_pair
from tests.models import build, build_tokenizer

PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 60))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    for name, seed in (("target", 0), ("draft", 1)):
        build(seed=seed, num_hidden_layers=1).save_pretrained(folder / name)
        build_tokenizer().save_pretrained(folder / name)
    return folder


def graphs():
    return counters["stats"]["unique_graphs"]


def test_same_tokens_and_no_recompilation(folder, caplog):
    """Chains, trees, beams, batches, chunks, a growing cache; recompiling is an error here.

    Compiling takes most of the time, so the draft's passes are plain."""
    before = graphs()
    eager = load_pair(folder, dtype="float64", passes="plain")
    assert graphs() == before  # off by default
    pair = load_pair(folder / "target", dtype="float64", passes="compiled")
    pair.draft, pair.packed["draft"] = eager.draft, eager.packed["draft"]
    said = [record.message.split()[0] for record in caplog.records if record.name == "decoders"]
    assert said == ["Compiling", "Compiled"]
    made = graphs()
    assert made > before
    with torch._dynamo.config.patch(error_on_recompile=True):
        for name in catalog:
            for prompt, options in (
                ([7, 7], {"seed": 3}),
                (PROMPTS, {"prefill_chunk": 7, "max_batch": 3}),
            ):
                options |= {"max_new_tokens": 12, "ignore_eos": True}
                ours, theirs = (generate(p, prompt, name, **options) for p in (pair, eager))
                if prompt is not PROMPTS:
                    ours, theirs = [ours], [theirs]
                assert [r.tokens for r in ours] == [r.tokens for r in theirs]
        generate(pair, [1], "greedy", max_new_tokens=300, ignore_eos=True)
    assert graphs() == made
    assert not counters["graph_break"]


def test_a_compiler_that_fails(folder, monkeypatch, caplog):
    """One sentence instead of the compiler's pages, and the same tokens."""

    def fail(*args, **inputs):
        raise RuntimeError("no C++ compiler\nand much more")

    expected = generate(load_pair(folder), [5, 6], "greedy", max_new_tokens=8).tokens
    monkeypatch.setattr(torch, "compile", lambda *args, **options: fail)
    caplog.clear()
    pair = load_pair(folder, passes="compiled")
    said = [
        r.getMessage()
        for r in caplog.records
        if r.name == "decoders" and "not compiled" in r.getMessage()
    ]
    assert len(said) == 2
    assert all("(no C++ compiler)" in message for message in said)
    assert generate(pair, [5, 6], "greedy", max_new_tokens=8).tokens == expected


PREPARES = """
import json, sys
from decoders import generate, load_pair
pair = load_pair(sys.argv[1], dtype="float64", passes=sys.argv[2])
found = generate(pair, json.loads(sys.argv[3]), "speculative", max_new_tokens=12, ignore_eos=True)
print(json.dumps([r.tokens for r in found]))
"""


def prepared(folder, passes, count=1, **environment):
    """The tokens and messages of processes that load the pair at the same time."""
    command = [sys.executable, "-c", PREPARES, str(folder), passes, json.dumps(PROMPTS)]
    options = {
        "env": {**os.environ, **environment},
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    started = [subprocess.Popen(command, **options) for _ in range(count)]
    said = [process.communicate(timeout=400) for process in started]
    return [json.loads(out.splitlines()[-1]) for out, _ in said], [message for _, message in said]


def bad(place, folder):
    """The environment of a place without a compiler, or whose compiler cannot keep its results.

    Nobody can write into /proc/self. (A folder that cannot even be made ends the import of
    transformers.)"""
    cache = "/proc/self" if "no folder" in place else folder / "cache"
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
    if "no compiler" in place:
        environment |= {
            "PATH": str(folder),
            "CXX": str(folder / "none"),
            "CC": str(folder / "none"),
        }
    return environment


LONG = pytest.mark.skipif(
    not os.environ.get("EVERYWHERE"), reason="takes two minutes: EVERYWHERE=1"
)


@pytest.mark.parametrize(
    ("passes", "place"),
    [
        ("recorded", "no compiler, no folder, two at once"),
        *(
            pytest.param("compiled", place, marks=LONG)
            for place in ("no compiler", "no folder", "two at once")
        ),
    ],
)
def test_preparing_in_a_bad_place(folder, tmp_path, passes, place):
    """At most one warning for each model, the right tokens, and an end.

    Recorded passes need neither a compiler nor a folder."""
    pair, options = (
        load_pair(folder, dtype="float64", passes="plain"),
        {"max_new_tokens": 12, "ignore_eos": True},
    )
    expected = [r.tokens for r in generate(pair, PROMPTS, "speculative", **options)]
    count = 2 if "two at once" in place else 1
    tokens, messages = prepared(folder, passes, count, **bad(place, tmp_path))
    assert tokens == [expected] * count
    for message in messages:
        failed = message.count("are not compiled (")
        assert failed == 0 if passes == "recorded" or place == "two at once" else failed <= 2, (
            message
        )
        assert failed == 2 or (passes, place) != ("compiled", "no compiler")
        assert "Traceback" not in message
