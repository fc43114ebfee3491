"""A comparison: its panels, its endpoint, its command."""

import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest

from decoders import catalog
from tests.workbench.engines.served import a_stream, chunk, served, usage, vllm
from workbench.kinds.comparison import Comparison
from workbench.kinds.comparison.form import CompareTab, endpoints
from workbench.kinds.comparison.results import LiveComparison
from workbench.measuring import session
from workbench.models.presets import PAIRS, PairChoice, tuned
from workbench.page.host import Host
from workbench.runs.events import Finished, Started
from workbench.runs.record import Run
from workbench.show.panel import run_panels
from workbench.studies.settings import Settings


def panels_of(run):
    return [*map(json.loads, run_panels(run))]


def test_a_failure_is_shown_in_its_panel_alone(run):
    first, *rest = run.results
    broken = replace(run, results=[replace(first, error="<b>it broke</b>"), *rest])
    failed, *others = panels_of(broken)
    assert (failed["status"], failed["error"]) == ("failed", "<b>it broke</b>")
    assert failed["numbers"] == []
    assert all(p["status"] == "done" for p in others)


@pytest.fixture(scope="module")
def events(pair, unmetered):
    """The study, and what its session reports until all texts are there."""
    asked = {"decoders": ["speculative", "greedy"], "max_new_tokens": 12, "repeats": 2}
    study = Comparison.from_json({"prompt": "aba ab", "settings": asked})
    reported = list(session.run(pair, study, meter=unmetered))
    (last,) = (e for e in reported if type(e) is Finished and e.at.last_text)
    return study, reported[: reported.index(last) + 1]  # later events are timings alone


@pytest.fixture
def results():
    return SimpleNamespace(strip="strip")


def live(panels):
    return {p["decoder"]: p for p in map(json.loads, panels.value()["panels"])}


def test_live_panels_follow_a_run_to_its_last_text(events, results):
    study, reported = events
    panels = LiveComparison(study, results)
    states = {name: panel["state"] for name, panel in live(panels).items()}
    assert states == {"greedy": "waiting", "speculative": "waiting"}
    panels.update(reported[0])
    assert live(panels)["greedy"]["state"] == "reading the prompt"
    for event in reported[1:]:
        panels.update(event)
        if isinstance(event, Started) and event.at.repeat:
            assert live(panels)[event.at.decoder]["state"] == "repeat 2"
    shown = [json.loads(p) for p in panels.value()["panels"]]
    for panel, last in zip(shown, panels_of(reported[-1].run), strict=True):
        kept = ("title", "tokens", "rounds", "status", "error", "state")
        assert {name: panel[name] for name in kept} == {name: last[name] for name in kept}
        speed = next(n for n in panel["numbers"] if n["name"] == "speed")
        assert speed["detail"].startswith("mean of 2 repeats")


def test_only_panels_that_changed_are_sent_again(events, results):
    """Every finished panel, 60 kB, was sent ten times a second while the next decoder was timed."""
    study, reported = events
    panels = LiveComparison(study, results)
    shown = panels.value()["panels"]
    for event in reported:
        sent = panels.update(event).get(results.strip)
        changes = sent["panels"] if sent else [None, None]
        shown = [new or old for new, old in zip(changes, shown, strict=True)]
        assert sent is None or shown == panels.value()["panels"]
        assert changes.count(None) >= 1 or isinstance(event, Started)
    panels.changes()
    assert panels.changes()["panels"] == [None, None]


SETTINGS = {"max_new_tokens": 4, "temperature": 0}


def compare(host: Host) -> Callable[..., Iterator[dict]]:
    """The function behind /compare."""
    (job,) = endpoints(host)
    return job


@pytest.fixture
def answer(host) -> Callable[..., dict]:
    call = compare(host)
    return lambda *arguments: list(call(*arguments))[-1]


def test_a_prompt_alone_is_asked_as_the_page_asks_it(answer, host, call, store):
    """It failed without decoders; page, endpoint and terminal began with other settings: top-p 0.9
    and tuned lengths here, the library's there."""
    few = {"timings": 1, "max_new_tokens": 2}
    found = answer("Once", None, few)["settings"]
    page = Settings.from_json({**tuned(), **CompareTab.opening["settings"]}).to_json()
    assert found == page | {"chat_template": False} | few  # the tests' pair has no template
    assert (found["temperature"], found["top_p"], found["mtad"]["draft_length"]) == (0.7, 0.9, 8)
    status, *_ = call("compare", "Once", "--timings", "1", "--max-new-tokens", "2")
    (kept,) = store.list()
    assert status == 0
    assert store.get(kept.id).settings == found


NAMES = ["greedy"]


@pytest.mark.parametrize(("arguments", "says"), [
    (("", NAMES, {}), "The prompt is empty"),
    ((7, NAMES, {}), "The prompt must be a text or a list of messages, not int"),
    (("half a \ud800 pair", NAMES, {}), "lone surrogate"),
    (("Once", "greedy", {}), "`decoders` must be a list of names"),
    (("Once", ["gredy"], {}), "greedy"),
    (("Once", NAMES, {"decoders": ["mtad"]}), "name them in `decoders` alone"),
    (("Once", NAMES, []), "`settings` must be one JSON object"),
    (("Once", NAMES, {"temperatur": 1}), "temperature"),
    (("Once", NAMES, {"temperature": float("nan")}), "temperature must be"),
    (("Once", NAMES, {"max_new_tokens": 10**400}), "max_new_tokens must be"),
    (("Once", NAMES, {"max_new_tokens": 99_999}), "positions of the models"),
    (("Once", ["mtad"], {"mtad": {"beans": 3}}), "beams"),
    (("Once", ["lookup"], {"lookup": {"references": 5}}), ""),
    (("Once", NAMES, {"chat_template": True}), "chat template"),
    (([{"role": "user", "content": "Hi"}], NAMES, {}), "has no chat template"),
    (([{"role": "robot", "content": "Hi"}], NAMES, {}), "Message 1 has the role 'robot'"),
])  # fmt: skip
def test_whatever_is_sent_is_answered_in_one_sentence(answer, host, caplog, arguments, says):
    """Settings as a list, a prompt as a number and half an emoji once gave tracebacks."""
    with pytest.raises(gr.Error) as refusal:
        answer(*arguments)
    sentence = refusal.value.message
    assert says in sentence
    assert sentence.rstrip().endswith((".", "?"))
    assert "\n" not in sentence
    assert "Something went wrong" not in sentence
    assert not refusal.value.print_exception
    assert caplog.records == []
    assert host.store.list() == []


def test_a_run_need_not_be_kept(call, store):
    _, out, _ = call("compare", "x", "--decoders", "greedy", "--max-new-tokens", "1", "--no-save")
    assert store.list() == []
    assert "kept as run" not in out


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


def test_messages_are_an_operand(call, store, byte_tokenizer, monkeypatch):
    template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}/{% endfor %}"
    monkeypatch.setattr(byte_tokenizer, "chat_template", template)
    base = ("--decoders", "greedy", "--max-new-tokens", "1")
    messages = [{"role": "user", "content": "Hi"}]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(messages).encode())))
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
    decoders = ("--decoders", "greedy", "dsbd", "mtad")
    status, *_ = call("compare", "x", *decoders, "--max-new-tokens", "8")
    assert status == 130
    (kept,) = store.list()
    assert kept.decoders == ["greedy", "dsbd"]
    assert store.get(kept.id).cancelled
    assert signal.getsignal(signal.SIGINT) is before


def answers(call):
    last = {"finish_reason": "length"}
    return a_stream([chunk(" a red", [1]), chunk(" ball", [2], **last), usage(2)])


@pytest.fixture
def listed(monkeypatch):
    """Lists engines where whoever runs the workbench lists them."""
    return lambda engines: monkeypatch.setenv("WORKBENCH_ENGINES", engines)


def test_an_engine_may_be_given_by_its_url_which_no_run_holds(call, store, tmp_path, listed):
    path = tmp_path / "out.json"
    with served(vllm(answers)) as server, served(vllm(answers)) as other:
        listed(f"near={other.url}")
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


@pytest.mark.parametrize(("word", "says"), [
    ("fats", "There is no engine 'fats': did you mean 'fast'?"),
    ("ftp://host", "must begin with http"),
    ("http://user:secret@host", "must hold no user and no password"),
])  # fmt: skip
def test_an_engine_that_cannot_be_asked_is_refused_before_any_work(word, says, call, loads, listed):
    listed("fast=http://127.0.0.1:9")
    status, _, err = call("compare", "Once", "--engines", word)
    assert (status, loads) == (2, [])
    assert says in err
    assert "secret" not in err


def test_claims_follow_the_settings(run):
    settings = {**run.settings, "speculative": {"lenience": 0.5}}
    changed = replace(run, study={**run.study, "settings": settings})
    claims = {p["decoder"]: p["claim"] for p in panels_of(changed)}
    names = ("speculative", "greedy", "beam_search")
    wanted = ["changes the text", "always the likeliest", "search"]
    assert [claims[name] for name in names] == wanted


def test_a_client_that_leaves_ends_its_job(host):
    answers = compare(host)("Once", NAMES, {"max_new_tokens": 400, "timings": 5})
    next(answers)
    answers.close()
    assert list(compare(host)("next", NAMES, SETTINGS))[-1]["prompt"] == "next"
