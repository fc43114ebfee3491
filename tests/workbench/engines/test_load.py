"""Load of our own: how many requests are open, in which order they are told, what is counted."""

import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from decoders import InputError
from tests.workbench.engines.served import Reply, a_json, a_stream, chunk, served, usage, vllm
from workbench.engines.load import Own, Stopped, together
from workbench.engines.probe import connect
from workbench.engines.record import Query, Record, Speculation

QUERIES = [Query(f"prompt {i}", 2, seed=i) for i in range(6)]


class Answering:
    """Answers with the prompt, and notes how many requests were open at once."""

    def __init__(self, seconds: float = 0.01):
        self.seconds, self.open, self.most = seconds, 0, 0
        self.lock, self.prompts = threading.Lock(), list[str]()

    def __call__(self, call) -> Reply:
        with self.lock:
            self.open += 1
            self.most = max(self.most, self.open)
            self.prompts.append(call.body["prompt"])
        return a_stream(self.events(call.body["prompt"]))

    def events(self, prompt):
        time.sleep(self.seconds)
        yield chunk(prompt, [1])
        with self.lock:
            self.open -= 1
        yield chunk("", [2], finish_reason="length")
        yield usage(2)


@pytest.mark.parametrize("at_once", [1, 3])
def test_as_many_requests_are_open_as_said_and_their_answers_are_in_order(at_once):
    answering = Answering()
    with served(vllm(answering)) as server:
        load = Own().make(connect(server.engine()), QUERIES, at_once)
    assert answering.most == at_once
    assert [record.text for record in load.records] == [query.prompt for query in QUERIES]
    # Those that warm it up are not counted.
    asked = Counter(answering.prompts)
    assert asked == Counter(q.prompt for q in QUERIES) + Counter(
        q.prompt for q in QUERIES[:at_once]
    )
    least = len(QUERIES) / at_once * answering.seconds
    assert least <= load.seconds < least + 2


def test_the_window_is_open_while_the_counted_requests_are():
    answering, seen = Answering(), []

    @contextmanager
    def window():
        seen.append(len(answering.prompts))
        yield
        seen.append(len(answering.prompts))

    with served(vllm(answering)) as server:
        Own().make(connect(server.engine()), QUERIES, 2, window)
    assert seen == [2, 8]


def test_after_the_first_failure_nothing_more_is_asked():
    def failing(call):
        if call.body["prompt"] == "prompt 2":
            return a_json({"error": {"message": "no memory"}}, 500)
        return a_stream([chunk(" a", [1], finish_reason="length"), usage(1)])

    with (
        served(vllm(failing)) as server,
        pytest.raises(InputError, match=r"Engine fake failed .* it says: no memory"),
    ):
        Own().make(connect(server.engine()), QUERIES, 1)
    assert [call.body["prompt"] for call in server.calls if call.body] == [
        "prompt 0", "prompt 0", "prompt 1", "prompt 2",
    ]  # fmt: skip


def test_an_answer_that_breaks_off_fails_the_load():
    with (
        served(vllm(lambda call: a_stream([chunk(" a", [1])]))) as server,
        pytest.raises(InputError, match="Engine fake broke off the answer"),
    ):
        Own().make(connect(server.engine()), QUERIES, 2)


def test_stop_is_heard_while_a_server_is_silent():
    """It was heard when the whole load was over."""
    silent, stop = threading.Event(), threading.Event()

    def answer(call):
        stop.set()
        silent.wait(20)
        return a_stream([])

    began = time.monotonic()
    with served(vllm(answer)) as server:
        with pytest.raises(Stopped):
            Own().make(connect(server.engine()), QUERIES, 2, stopped=stop.is_set)
        assert time.monotonic() - began < 5
        silent.set()
    assert len([call for call in server.calls if call.body]) == 2


def record(speculation) -> Record:
    return Record("fast", "vllm", None, "", "", None, 1, (), 1.0, "length", speculation)


@pytest.mark.parametrize(
    ("told", "before", "after", "whole"),
    [
        # each step is told, whatever the counters say
        ([(4, 2, 2), (6, 3, 2)], (0, 0, 0), (9, 9, 9), Speculation(10, 5, 4)),
        # steps are not: the counters tell them
        ([(4, 2, None)], (1, 1, 1), (6, 4, 3), Speculation(5, 3, 2, of="server")),
        ([None], (1, 1, 1), (6, 4, 3), Speculation(5, 3, 2, of="server")),
        ([(4, 2, None), (6, 3, None)], None, None, Speculation(10, 5)),
        ([(4, 2, 2), None], None, None, None),
        ([None, None], None, None, None),
    ],
)
def test_draft_tokens_of_all_requests_together(told, before, after, whole):
    def counts(of):
        return of and Counter(dict(zip(("drafted", "accepted", "steps"), of, strict=True)))

    records = [record(each and Speculation(*each)) for each in told]
    assert together(records, counts(before), counts(after)) == whole
