"""An agent's client asks the served page: its tools, their results and their errors."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio import create_task_group
from anyio.from_thread import start_blocking_portal

from tests.browser.conftest import serving

pytest.importorskip("mcp", reason="it is in requirements.txt")

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


@pytest.fixture(scope="module")
def address(pair, tmp_path_factory):
    with serving(pair, tmp_path_factory.mktemp("runs")) as (address, _):
        yield address


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[ClientSession]:
    async with (
        streamablehttp_client(f"{address}gradio_api/mcp/") as (read, write, _),
        ClientSession(read, write) as client,
    ):
        await client.initialize()
        yield client


def ask(address: str, *calls: tuple[str, dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
    """The tools by name, and the answers to these calls in one session."""

    async def session() -> tuple[dict[str, Any], list[Any]]:
        async with connected(address) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            return tools, [await client.call_tool(name, given) for name, given in calls]

    # A thread of its own: a browser's test before this one leaves a loop in the main thread.
    with start_blocking_portal() as portal:
        return portal.call(session)


def test_an_agent_finds_the_tools_and_gets_results(address):
    """A result was the text of a Python dictionary, which no JSON reader takes."""
    settings = {"max_new_tokens": 4, "temperature": 0, "timings": 1}
    asked = {"prompt": "Once", "decoders": ["greedy", "speculative"], "settings": settings}
    tools, (answer,) = ask(address, ("compare", asked))
    assert set(tools) == {"compare", "alternatives", "branch", "draw"}
    for tool in tools.values():
        assert len(tool.description) > 60
        assert tool.outputSchema["type"] == "object"
        assert tool.inputSchema["properties"]
    assert not answer.isError, answer.content
    run = answer.structuredContent
    assert [each["decoder"] for each in run["results"]] == ["greedy", "speculative"]
    assert run["results"][0]["text"] == run["results"][1]["text"]
    named = {"run": run["id"], "decoder": "greedy", "at": 1}
    _, (others,) = ask(address, ("alternatives", named))
    assert len(others.structuredContent["alternatives"]) > 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"prompt": ""}, "The prompt is empty"), ({"decoders": ["gredy"]}, "greedy")],
)
def test_an_agent_is_told_what_was_wrong_in_a_sentence(address, wrong, says):
    _, (answer,) = ask(address, ("compare", {"prompt": "Once", "decoders": ["greedy"], **wrong}))
    assert answer.isError
    assert says in answer.content[0].text


def test_calls_beyond_the_queue_are_turned_away(pair, tmp_path):
    """Agents waited for the device in any number, past the length of the page's queue."""
    answers: list[Any] = []
    given = {"prompt": "Once", "decoders": ["greedy"], "settings": {"max_new_tokens": 2}}

    async def call(client: ClientSession) -> None:
        answers.append(await client.call_tool("compare", given))

    async def session(address: str) -> None:
        async with connected(address) as client, create_task_group() as group:
            for _ in range(3):
                group.start_soon(call, client)

    with (
        serving(pair, tmp_path, queue_size=1) as (address, host),
        start_blocking_portal() as portal,
    ):
        with host.device.turn:  # one call gets no further, one waits behind it
            asked = portal.start_task_soon(session, address)
            began = time.monotonic()
            while not answers and time.monotonic() - began < 60:
                time.sleep(0.05)
        asked.result(60)
    refused, *others = answers
    assert refused.isError
    assert "The queue is full (at most 1 may wait)" in refused.content[0].text
    assert [each.isError for each in others] == [False, False]
