"""The client on real servers with the embedded pair: `make engines` installs them and runs this.

`make test` does not: its name is no test's. Each server gets a free port and is ended.
"""

import json
from collections import Counter

import pytest

import decoders
from tools.engines.places import STORIES, Places
from tools.engines.record import DIALECTS, RECORDED, calls
from tools.engines.servers import SERVERS, running
from workbench.engines.addresses import Engine
from workbench.engines.client import Client
from workbench.engines.probe import connect, probe
from workbench.engines.record import Query, Record

TOKENS, PROMPTS = 48, 4


@pytest.fixture(scope="module")
def pair() -> decoders.ModelPair:
    return decoders.load_pair()


@pytest.fixture(scope="module", params=SERVERS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def client(name: str):
    with running(SERVERS[name](Places())) as address:
        found = connect(Engine(name, address))
        yield found
        found.wire.close()


def openings(pair: decoders.ModelPair, client: Client) -> list[str | tuple[int, ...]]:
    """Held-out prompts, as ids if the server takes them."""
    texts = json.loads((STORIES / "prompts.json").read_text(encoding="utf-8"))["openings"]
    if not client.dialect.takes_ids:
        return texts[:PROMPTS]
    return [tuple(pair.tokenizer(text).input_ids) for text in texts[:PROMPTS]]


def fates(found: Record) -> tuple[int, int]:
    """The fewest and the most tokens that its counts of drafts explain: the prompt's, those that
    were accepted, and one more a step; the last step may be cut off."""
    told = found.speculation
    assert told is not None
    assert told.steps is not None
    most = 1 + told.accepted + told.steps
    return most - 3, most


def test_the_dialect_is_found_out(client, name):
    assert client.dialect is DIALECTS[name]


def test_the_probe_tells_what_its_answers_bring(client, name):
    found = probe(client)
    assert found.takes_ids == found.token_ids == client.dialect.takes_ids
    assert found.prompt_logprobs == name.startswith("vllm")
    counts = {"vllm-draft": "each step", "llama-cpp-draft": "request"}
    assert found.speculation == counts.get(name)


def test_greedy_texts_are_ours_or_part_at_a_near_tie(client, name, pair):
    """The server of llama-cpp-python penalises repetitions unless it is told not to, and the common
    fields of requests have no word for it: the judge finds out."""
    said: Counter[str] = Counter()
    for prompt in openings(pair, client):
        given = prompt if isinstance(prompt, str) else list(prompt)
        mine = decoders.generate(
            pair, given, "greedy", max_new_tokens=TOKENS, temperature=0.0, ignore_eos=True
        )
        asked = client.ask(Query(prompt, TOKENS, temperature=0.0))
        theirs = asked.text if asked.tokens is None else list(asked.tokens)
        ours = mine.text if asked.tokens is None else list(mine.tokens)
        # vLLM reads the weights as they are stored, in bfloat16
        dtype = "bfloat16" if client.dialect.kind == "vllm" else "float16"
        if ours[: len(theirs)] != theirs:
            found = decoders.compare_greedy(pair, given, ours, theirs, dtype=dtype)
            said[found.verdict] += 1
            print(f"\n{client.wire.engine.name}: {found.says}")
    assert set(said) == {"fault"} if name == "llama-cpp-python" else set(said) <= {"near-tie"}


def test_counts_of_drafts_explain_the_tokens(client, name, pair):
    prompt = openings(pair, client)[0]
    found = client.ask(Query(prompt, TOKENS, temperature=0.0), alone=True)
    if name == "vllm-draft":
        least, most = fates(found)
        assert least <= found.count <= most
        assert len(found.speculation.per_step) == found.speculation.steps
    elif name == "llama-cpp-draft":
        assert 0 < found.speculation.accepted < found.speculation.drafted
        assert found.speculation.accepted < found.count
    else:
        assert found.speculation is None


def test_tokens_arrive_one_after_another(client, pair):
    found = client.ask(Query(openings(pair, client)[0], TOKENS, temperature=0.0))
    assert found.finished == "length"
    assert 0 < found.first < found.seconds
    assert len(found.arrivals) > TOKENS / 4 - 1


def test_answers_have_the_fields_that_were_recorded(client, name):
    """Other versions may answer otherwise; then the recorded answers are to be made again."""
    before = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))["calls"]
    after = calls(name, client.wire.engine.url, client.model)
    for old, new in zip(before, after, strict=True):
        assert new["request"] == old["request"]
        assert (new["status"], new["type"]) == (old["status"], old["type"])
        assert fields(new["answer"]) == fields(old["answer"])


def fields(answer: object) -> object:
    """The names in an answer; lists and streams have the first of their parts."""
    if isinstance(answer, dict):
        return {name: fields(value) for name, value in answer.items()}
    return fields(answer[0]) if isinstance(answer, list) and answer else type(answer).__name__
