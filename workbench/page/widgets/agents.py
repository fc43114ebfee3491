"""Endpoints as tools of agents (MCP): what they return is JSON that follows a schema.

Gradio hands a result over as the text of a Python dictionary and does not say what it will be.
"""

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import gradio as gr
from pydantic import TypeAdapter


class AgentBlocks(gr.Blocks):
    """A page whose endpoints answer agents with typed JSON.

    Gradio puts its server of tools into `mcp_server_obj` when the page is launched.
    """

    @property
    def mcp_server_obj(self) -> Any:
        return self._tools

    @mcp_server_obj.setter
    def mcp_server_obj(self, server: Any) -> None:
        self._tools = server and typed(server)


def typed(tools: Any) -> Any:
    """Gradio's server of tools, with JSON results and the type of each endpoint's result."""
    types, handlers = tools.types, tools.mcp_server.request_handlers
    call, listed = handlers[types.CallToolRequest], handlers[types.ListToolsRequest]

    async def typed_call(request: Any) -> Any:
        answer: Any = await call(request)
        if not answer.root.isError:
            answer.root.structuredContent = json.loads(answer.root.content[0].text)
        return answer

    async def typed_list(request: Any) -> Any:
        answer: Any = await listed(request)
        for tool in answer.root.tools:
            endpoint = tools.get_block_fn_from_endpoint_name(tools.tool_to_endpoint[tool.name])
            tool.outputSchema = schema(endpoint.fn) if endpoint is not None else None
        return answer

    tools.postprocess_output_data = lambda data, root_url: [
        types.TextContent(type="text", text=json.dumps(each)) for each in data
    ]
    handlers[types.CallToolRequest] = typed_call
    handlers[types.ListToolsRequest] = typed_list
    return tools


def schema(job: Any) -> dict[str, Any]:
    """The JSON schema of what a job returns, or of what it yields last."""
    returned = get_type_hints(job)["return"]
    if get_origin(returned) is Iterator:
        (returned,) = get_args(returned)
    return TypeAdapter(returned).json_schema()
