"""Whoever stops a call waits for one step of the model, or some 20 ms of steps.

Times are those of the decoding thread alone, so that other work on the machine does not count."""

import itertools
import statistics
import threading
import time

import pytest

from decoders import generate, load_pair, stream
from tests.needs import needs_kernels
from tests.pairwise import part

LEAST, GENEROUS = 0.02, 3.0  # seconds
OPENINGS = (
    "Once upon a time there was a", "One day, a little girl named", "Tom and his dog went to",
    "The sun was bright and", "Lily liked to play with", "In the big forest lived",
    "Mom said, \"Let's go", "There was a small red car",
)  # fmt: skip
SAMPLED = {"temperature": 0.7, "top_p": 0.9}
CASES = {
    "greedy": (OPENINGS[0], {}), "multinomial": (OPENINGS[0], SAMPLED),
    "speculative": (OPENINGS[0], SAMPLED), "mtad": (OPENINGS[0], SAMPLED),
    "dsbd": (OPENINGS[0], SAMPLED), "beam_search": (OPENINGS[0], {}),
    "greedy, a batch": (list(OPENINGS), {}), "speculative, a batch": (list(OPENINGS), SAMPLED),
    "a long prompt": ([7] * 900, {"prefill_chunk": 64}),
}  # fmt: skip

cannot = not hasattr(time, "pthread_getcpuclockid")
pytestmark = pytest.mark.skipif(cannot, reason="threads have no clock here")


@pytest.fixture(scope="module")
def pair():
    return load_pair(device="cpu")


def own_time(run) -> float:
    begin = time.thread_time()
    run()
    return time.thread_time() - begin


def delay(pair, prompt, method, after, **options) -> float:
    """Seconds from the event, which another thread sets after so many, to the end of the call."""
    event, mine, began = threading.Event(), threading.get_ident(), time.thread_time()
    clock, at = time.pthread_getcpuclockid(mine), []

    def stop():
        while time.clock_gettime(clock) - began < after:
            time.sleep(0.001)
        at.append(time.clock_gettime(clock))
        event.set()

    thread = threading.Thread(target=stop)
    thread.start()
    found = generate(pair, prompt, method, ignore_eos=True, cancel=event, **options)
    took = time.thread_time()
    thread.join()
    results = found if isinstance(found, list) else [found]
    assert {result.finished for result in results} == {"cancelled"}
    return took - at[0]


@needs_kernels
@pytest.mark.parametrize("case", part(CASES))
def test_a_stop_is_heard_within_a_step(pair, case):
    """A chain of tokens is one call of kernels, and so was a prompt of any length."""
    prompt, options = CASES[case]
    method = case.split(",")[0] if case != "a long prompt" else "greedy"
    budget = {"max_new_tokens": 100 if case == "a long prompt" else 800}
    few = prompt[:64] if case == "a long prompt" else prompt
    generate(pair, few, method, max_new_tokens=8, **options)
    late = []
    for after in (0.03, 0.04, 0.05, 0.06, 0.07):
        waited = delay(pair, prompt, method, after, **options, **budget)
        # Beside each wait, because the host's pace changes.
        step = own_time(lambda: generate(pair, few, "greedy", max_new_tokens=1))
        late.append(waited / max(LEAST, step))
    assert statistics.median(late) < GENEROUS


def test_a_prompt_is_read_in_parts_that_a_stop_waits_for(pair):
    """All 900 tokens were one pass; of other models, with longer prompts, one of seconds."""
    looks = []
    generate(pair, [7] * 900, "greedy", max_new_tokens=1, cancel=lambda: looks.append(1))
    assert len(looks) > 1


def test_tokens_come_as_launches_end(pair):
    """And not with the text's last one: a stream shows a chain's tokens once they are drawn."""
    times, options = [], {"max_new_tokens": 64, "ignore_eos": True}
    began = time.thread_time()
    for event in stream(pair, OPENINGS[0], "greedy", **options):
        if event.round is not None:
            times.append(time.thread_time() - began)
    assert len(times) == 64
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert times[0] < times[-1] / 2
    assert max(gaps) < times[-1] / 2
