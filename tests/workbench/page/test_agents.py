"""An agent's client asks the served page: its tools, their results and their errors."""

from typing import Any

import jsonschema
import pytest
from anyio.from_thread import start_blocking_portal

from tests.browser.conftest import serving

pytest.importorskip("mcp", reason="it is in requirements.txt")

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


@pytest.fixture(scope="module")
def address(pair, tmp_path_factory):
    with serving(pair, tmp_path_factory.mktemp("runs")) as (address, _):
        yield address


def ask(address: str, *calls: tuple[str, dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
    """The tools by name, and the answers to these calls in one session."""

    async def session() -> tuple[dict[str, Any], list[Any]]:
        async with (
            streamablehttp_client(f"{address}gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as client,
        ):
            await client.initialize()
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            return tools, [await client.call_tool(name, given) for name, given in calls]

    # A thread of its own: a browser's test before this one leaves a loop in the main thread.
    with start_blocking_portal() as portal:
        return portal.call(session)


def test_an_agent_finds_the_tools_and_gets_typed_results(address):
    """A result was the text of a Python dictionary, which no JSON reader takes."""
    asked = {
        "prompt": "Once",
        "decoders": ["greedy", "speculative"],
        "settings": {"max_new_tokens": 4, "temperature": 0, "timings": 1},
    }
    tools, (answer,) = ask(address, ("compare", asked))
    assert set(tools) == {"compare", "alternatives", "branch", "draw", "diverge", "judge"}
    for tool in tools.values():
        assert len(tool.description) > 60
        assert tool.outputSchema["type"] == "object"
        assert tool.inputSchema["properties"]
    assert not answer.isError, answer.content
    run = answer.structuredContent
    jsonschema.validate(run, tools["compare"].outputSchema)
    assert [each["decoder"] for each in run["results"]] == ["greedy", "speculative"]
    assert run["results"][0]["text"] == run["results"][1]["text"]
    named = {"run": run["id"], "decoder": "greedy", "at": 1}
    _, (others,) = ask(address, ("alternatives", named))
    jsonschema.validate(others.structuredContent, tools["alternatives"].outputSchema)
    assert len(others.structuredContent["alternatives"]) > 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"prompt": ""}, "The prompt is empty"), ({"decoders": ["gredy"]}, "greedy")],
)
def test_an_agent_is_told_what_was_wrong_in_a_sentence(address, wrong, says):
    _, (answer,) = ask(address, ("compare", {"prompt": "Once", "decoders": ["greedy"], **wrong}))
    assert answer.isError
    assert says in answer.content[0].text
