"""`python -m workbench compare`: what it prints, writes and keeps."""

import io
import json
import os
import signal

import pytest

from decoders import catalog
from tests.workbench.engines.served import a_stream, chunk, served, usage, vllm
from workbench.models.presets import PAIRS, PairChoice
from workbench.runs.record import Run


def test_a_comparison_prints_texts_and_figures_writes_files_and_is_kept(call, store, tmp_path):
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "html")}
    flags = [x for kind, path in files.items() for x in (f"--{kind}", str(path))]
    status, out, _err = call(
        "compare", "Once", "--decoders", "greedy", "mtad", "--max-new-tokens", "12",
        "--temperature", "0.5", "--seed", "3", "--set", "mtad.beams=3", "--set", "mtad.ratio=raw",
        "--repeats", "2", *flags,
    )  # fmt: skip
    assert status == 0
    run = Run.from_json(files["json"].read_bytes())
    assert run.settings["decoders"] == ["greedy", "mtad"]
    shared = run.settings["temperature"], run.settings["seed"]
    assert (*shared, run.settings["mtad"]["beams"], run.settings["mtad"]["ratio"]) == (
        0.5,
        3,
        3,
        "raw",
    )
    assert [r.seed for r in run.results] == [3, 3, 4, 4]
    assert store.get(run.id) == run
    assert out.endswith(f"\nkept as run {run.id}\n")
    assert "tokens/s" in out
    assert out.count("\ngreedy  Takes the likeliest token") == 1  # the texts of the first repeat
    assert files["csv"].read_text().count("\n") == 5
    assert files["html"].read_text().startswith("<!doctype html>")


def test_a_preset_is_the_ground_that_flags_change_and_a_run_need_not_be_kept(call, store, tmp_path):
    path = tmp_path / "out.json"
    _, out, _ = call(
        "compare", "Once", "--preset", "MTAD paper", "--decoders", "greedy", "--max-new-tokens",
        "4", "--top-k", "5", "--json", str(path), "--no-save",
    )  # fmt: skip
    settings = Run.from_json(path.read_bytes()).settings
    assert (settings["top_k"], settings["top_p"], settings["decoders"]) == (5, 0.9, ["greedy"])
    assert store.list() == []
    assert "kept as run" not in out


def test_the_prompt_may_come_from_standard_input(call, store, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("a long\nprompt"))
    call("compare", "-", "--decoders", "greedy", "--max-new-tokens", "2")
    (kept,) = store.list()
    assert store.get(kept.id).study["prompt"] == "a long\nprompt"


def test_standard_input_that_is_no_text_is_one_sentence(call, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), "utf-8"))
    status, out, err = call("compare", "-")
    assert (status, out) == (2, "")
    assert err.startswith("Standard input is not text in UTF-8")


def test_the_pair_is_the_one_that_the_flags_name(call, loads):
    base = ("compare", "x", "--decoders", "greedy", "--max-new-tokens", "1", "--no-save")
    call(*base)
    call(*base, "--models", "a", "b", "--device", "cpu", "--dtype", "bfloat16")
    call(*base, "--models", "Qwen3-8B + Qwen3-0.6B")
    call(*base, "--models", "a", "--quantization", "int8")
    assert loads == [
        PairChoice(),
        PairChoice("a", "b", "cpu", "bfloat16"),
        PAIRS["Qwen3-8B + Qwen3-0.6B"].choice(),
        PairChoice("a", quantization="int8"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("compare x --decoders gredy", "did you mean 'greedy'"),
        ("compare x --temperature warm", "temperature must be"),
        ("compare x --max-new-tokens 0", "max_new_tokens must be"),
        ("compare x --set mtad.beams=900", "beams must be"),
        ("compare x --set mtad.beam=3", "did you mean 'beams'"),
        ("compare x --set beams=3", "as in mtad.beams=8"),
        ("compare x --set dsbdd.beams=3", "did you mean 'dsbd'"),
        ("compare x --preset papers", "There is no preset"),
        ("compare x --models a b c", "a target and a draft"),
        ("compare x --json /no/such/folder/out.json", "There is no folder /no/such/folder"),
        ("compare x --csv /tmp", "/tmp is a folder"),
    ],
)
def test_bad_input_is_one_clear_sentence_before_anything_is_loaded(call, loads, arguments, message):
    status, out, err = call(*arguments.split())
    assert (status, out, loads) == (2, "", [])
    assert message in err
    assert err.strip().count("\n") == 0


@pytest.mark.parametrize("prompt", ["", " \n", "half \ud83e"])
def test_a_prompt_that_is_no_text_is_one_sentence(call, loads, prompt):
    """A lone surrogate gave a traceback and "TextEncodeInput must be Union[...]"."""
    status, out, err = call("compare", prompt)
    assert (status, out, loads) == (2, "", [])
    assert err.startswith("The prompt ")


def test_messages_are_an_operand(call, store, byte_tokenizer, monkeypatch):
    template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}/{% endfor %}"
    monkeypatch.setattr(byte_tokenizer, "chat_template", template)
    base = ("--decoders", "greedy", "--max-new-tokens", "1")
    messages = [{"role": "user", "content": "Hi"}]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(messages)))
    for words in ([json.dumps(messages)], ["-"], ["Hi"], ["Hi", "--no-chat-template"],
                  ["Hi", "--system", "Hm"]):  # fmt: skip
        assert call("compare", *words, *base)[0] == 0
    runs = [store.get(kept.id) for kept in store.list()][::-1]
    assert [run.study["prompt"] for run in runs] == [messages, messages, "Hi", "Hi", "Hi"]
    assert [run.results[0].alone.prompt_ids for run in runs] == [
        byte_tokenizer(text).input_ids for text in ("u:Hi/", "u:Hi/", "u:Hi/", "Hi", "s:Hm/u:Hi/")
    ]
    status, _, err = call("compare", '[{"role": "user"}]')
    assert (status, err) == (2, "Message 1 has no content; give it a text.\n")


def test_what_only_the_pair_can_tell_is_one_sentence_too(call):
    status, out, err = call("compare", "x", "--chat-template")
    assert (status, out) == (2, "")
    assert "no chat template" in err


def test_a_decoder_that_fails_gives_status_1_and_the_others_are_shown_and_kept(call, monkeypatch):
    def decode(self, request):
        raise RuntimeError("broken on purpose")
        yield

    monkeypatch.setattr(catalog["mtad"], "decode", decode)
    status, out, _ = call("compare", "x", "--decoders", "greedy", "mtad", "--max-new-tokens", "4")
    assert status == 1
    assert "broken on purpose" in out
    assert "kept as run" in out


def test_an_interrupt_keeps_what_is_finished(call, store, monkeypatch):
    def decode(self, request):
        os.kill(os.getpid(), signal.SIGINT)
        yield from usual(self, request)

    usual = catalog["dsbd"].decode
    monkeypatch.setattr(catalog["dsbd"], "decode", decode)
    before = signal.getsignal(signal.SIGINT)
    status, _, _ = call(
        "compare", "x", "--decoders", "greedy", "dsbd", "mtad", "--max-new-tokens", "8"
    )
    assert status == 130
    (kept,) = store.list()
    assert kept.decoders == ["greedy", "dsbd"]
    assert store.get(kept.id).cancelled
    assert signal.getsignal(signal.SIGINT) is before


def answers(call):
    last = {"finish_reason": "length"}
    return a_stream([chunk(" a red", [1]), chunk(" ball", [2], **last), usage(2)])


def test_an_engine_may_be_given_by_its_url_which_no_run_holds(call, store, tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    with served(vllm(answers)) as server, served(vllm(answers)) as other:
        monkeypatch.setenv("WORKBENCH_ENGINES", f"near={other.url}")
        status, out, err = call(
            "compare", "Once", "--decoders", "greedy", "--max-new-tokens", "4", "--temperature",
            "0", "--engines", server.url, "near", "--json", str(path),
        )  # fmt: skip
    assert status == 0, err
    run = Run.from_json(path.read_bytes())
    assert run.settings["decoders"] == ["greedy", "engine:given-1", "engine:near"]
    assert [result.alone.text for result in run.results[1:]] == [" a red ball"] * 2
    assert "vllm 0.32.0, over HTTP" in out
    assert "It serves 'stories', by its name another model than the target here" in out
    for text in (path.read_text(), out, err, store.get(run.id).dumps()):
        assert "127.0.0.1" not in text


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("fats", "There is no engine 'fats': did you mean 'fast'?"),
        ("ftp://host", "must begin with http"),
        ("http://user:secret@host", "must hold no user and no password"),
    ],
)
def test_an_engine_that_cannot_be_asked_is_refused_before_any_work(
    word, says, call, loads, monkeypatch
):
    monkeypatch.setenv("WORKBENCH_ENGINES", "fast=http://127.0.0.1:9")
    status, _, err = call("compare", "Once", "--engines", word)
    assert (status, loads) == (2, [])
    assert says in err
    assert "secret" not in err
