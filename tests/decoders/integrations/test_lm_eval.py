"""The model class of the lm-evaluation-harness on a local task; skipped without the harness."""

import json

import pytest

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


def test_log_likelihoods_are_the_targets_alone(pair):
    model = DecodersLM(pair)
    for score in (model.loglikelihood, model.loglikelihood_rolling):
        with pytest.raises(decoders.InputError, match="take the harness's own model"):
            score([asked("loglikelihood", "abc", " de")])
