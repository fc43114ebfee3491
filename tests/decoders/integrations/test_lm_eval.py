"""The model class of the lm-evaluation-harness on a local task; skipped without the harness."""

import json

import pytest
import torch

lm_eval = pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

import decoders  # noqa: E402
from decoders import ModelPair, catalog  # noqa: E402
from decoders.integrations.lm_eval import DecodersLM  # noqa: E402
from tests.models import build_pair, build_tokenizer  # noqa: E402

TASK = """
task: tiny
dataset_path: json
dataset_kwargs:
  data_files: {{test: "{file}"}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["Z"], max_gen_toks: 12, do_sample: false}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return build_pair(tokenizer=build_tokenizer())


def asked(kind: str, *arguments) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


def test_a_local_task_scores_the_same_with_greedy_and_speculative_and_runs_with_mtad(
    pair, tmp_path, monkeypatch
):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    questions = ["abc", "hello", "one two", "xyz"]
    plain = [
        decoders.generate(pair, q, "greedy", max_new_tokens=12, temperature=0, stop=["Z"]).text
        for q in questions
    ]
    lines = [
        {"question": q, "answer": a if i % 2 else "no"}
        for i, (q, a) in enumerate(zip(questions, plain, strict=True))
    ]
    (tmp_path / "tiny.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "tiny.yaml").write_text(TASK.format(file=tmp_path / "tiny.jsonl"))
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    scores = {}
    for name in ("greedy", "speculative", "mtad"):
        model = DecodersLM(pair, catalog[name](), batch_size=2)
        found = lm_eval.simple_evaluate(
            model=model, tasks=["tiny"], task_manager=manager, bootstrap_iters=0
        )
        scores[name] = found["results"]["tiny"]["exact_match,none"]
    assert scores["greedy"] == scores["speculative"] == 0.5
    assert 0 <= scores["mtad"] <= 1


def test_loglikelihood_is_that_of_transformers(pair):
    model = DecodersLM(pair)
    pairs = [("abc", " de"), ("", "hello"), ("one ", "two"), ("x", "y")]
    found = model.loglikelihood([asked("loglikelihood", *p) for p in pairs])
    for (context, continuation), (value, greedy) in zip(pairs, found, strict=True):
        before = pair.tokenizer(context).input_ids if context else [model.prefix_token_id]
        whole = (
            pair.tokenizer(context + continuation).input_ids
            if context
            else [*before, *pair.tokenizer(continuation).input_ids]
        )
        if context.endswith(" "):
            before = pair.tokenizer(context.rstrip()).input_ids
        with torch.no_grad():
            logs = pair.target(torch.tensor([whole])).logits[0].log_softmax(-1)
        expected = sum(logs[i - 1, whole[i]].item() for i in range(len(before), len(whole)))
        assert value == pytest.approx(expected, abs=1e-5)
        likeliest = (logs[i - 1].argmax() == whole[i] for i in range(len(before), len(whole)))
        assert greedy == all(likeliest)
