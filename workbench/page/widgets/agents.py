"""Endpoints as tools of agents (MCP): what they return is JSON that follows a schema.

Gradio's own tools give a result as the text of a Python dictionary, and do not say what it will be.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any, get_args, get_origin, get_type_hints

import gradio as gr
from anyio import to_thread
from mcp import types
from mcp.server.fastmcp.tools import Tool
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import TypeAdapter
from starlette.routing import Mount

ADDRESS = "/gradio_api/mcp"
END = object()


def tools(jobs: Iterable[Callable[..., Any]]) -> dict[str, Any]:
    """A server of these jobs as options of FastAPI: its route and its lifespan."""
    named, server = {job.__name__: job for job in jobs}, Server("decoding-workbench")

    async def listed() -> list[types.Tool]:
        return [
            types.Tool(
                name=name,
                description=inspect.getdoc(job),
                inputSchema=Tool.from_function(job, structured_output=False).parameters,
                outputSchema=schema(job),
            )
            for name, job in named.items()
        ]

    async def called(name: str, given: dict[str, Any]) -> dict[str, Any]:
        try:
            return await outcome(named[name], given)
        except gr.Error as error:
            raise ValueError(error.message) from None  # the protocol's way to say a sentence

    server.list_tools()(listed)
    server.call_tool()(called)
    manager = StreamableHTTPSessionManager(server, stateless=True)

    @asynccontextmanager
    async def lifespan(_: Any) -> Any:
        async with manager.run():
            yield

    return {"routes": [Mount(ADDRESS, manager.handle_request)], "lifespan": lifespan}


async def outcome(job: Callable[..., Any], given: dict[str, Any]) -> Any:
    """What a job returns, or yields last; it ends if the agent leaves."""
    answer = await to_thread.run_sync(lambda: job(**given))
    if not isinstance(answer, Iterator):
        return answer
    last = None
    with closing(answer) as answers:  # type: ignore[type-var]  # jobs that yield are generators
        while (item := await to_thread.run_sync(next, answers, END)) is not END:
            last = item
    return last


def schema(job: Callable[..., Any]) -> dict[str, Any]:
    """The JSON schema of what a job returns, or of what it yields last."""
    returned = get_type_hints(job)["return"]
    if get_origin(returned) is Iterator:
        (returned,) = get_args(returned)
    return TypeAdapter(returned).json_schema()
