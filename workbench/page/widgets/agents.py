"""Endpoints as tools of agents (MCP): what they return is JSON that follows a schema.

Gradio hands a result over as the text of a Python dictionary and does not say what it will be.
"""

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

from gradio import mcp
from pydantic import TypeAdapter


class TypedServer(mcp.GradioMCPServer):
    """Gradio's server of tools, with the type of each endpoint's result."""

    def postprocess_output_data(self, data: Any, root_url: str) -> list[Any]:
        return [self.types.TextContent(type="text", text=json.dumps(each)) for each in data]

    def create_mcp_server(self) -> Any:
        server = super().create_mcp_server()
        types, handlers = self.types, server.request_handlers
        call, listed = handlers[types.CallToolRequest], handlers[types.ListToolsRequest]

        async def typed_call(request: Any) -> Any:
            answer: Any = await call(request)
            if not answer.root.isError:
                answer.root.structuredContent = json.loads(answer.root.content[0].text)
            return answer

        async def typed_list(request: Any) -> Any:
            answer: Any = await listed(request)
            for tool in answer.root.tools:
                endpoint = self.get_block_fn_from_endpoint_name(self.tool_to_endpoint[tool.name])
                tool.outputSchema = schema(endpoint.fn) if endpoint is not None else None
            return answer

        handlers[types.CallToolRequest] = typed_call
        handlers[types.ListToolsRequest] = typed_list
        return server


def schema(job: Any) -> dict[str, Any]:
    """The JSON schema of what a job returns, or of what it yields last."""
    returned = get_type_hints(job)["return"]
    if get_origin(returned) is Iterator:
        (returned,) = get_args(returned)
    return TypeAdapter(returned).json_schema()


def install() -> None:
    """Make Gradio serve tools through what stands above."""
    mcp.GradioMCPServer = TypedServer  # type: ignore[misc]  # there is no setting for it
