"""Components, handlers and forms of the page, and its tools for agents.

`workbench/web` has the scripts that draw the components.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from anyio import CapacityLimiter, WouldBlock, to_thread
from mcp import types
from mcp.server.fastmcp.tools import Tool
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.routing import Mount

from decoders import InputError

# Options of handlers, which run outside the queue or on the one device.
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
DEVICE: dict[str, Any] = {
    "concurrency_id": "device",
    "concurrency_limit": 1,
    "api_visibility": "private",
}
READ_ONCE: dict[str, Any] = {"preprocess": False}  # for a handler that calls `given`
Values = Mapping[Any, Any]  # component -> the visitor's input
Updates = dict[Any, Any]  # component -> its new value


class Faults(Exception):
    """The faults of a form: a sentence for each field that cannot be used."""

    def __init__(self, messages: Mapping[Any, str]):
        super().__init__("; ".join(messages.values()))
        self.messages = messages


class NotedForm:
    """The fields' values as one value, `values`, and a message or none for each field, `faults`.

    The browser puts a message at a field, and takes it away when the field changes or the visitor
    asks again. Gradio's own messages go as soon as any handler with that input answers, and cannot
    be seen at fields in a sheet that is shut.

    Args:
        fields: the inputs of the form; each has an `elem_id`
        name: tells forms apart
        refreshing: further events after which `values` are noted again. That changes them even if
            they are as before, so who sums the form up listens to nothing else, and older values
            never come after newer ones.
    """

    def __init__(self, fields: Sequence[Any], name: str, refreshing: Sequence[Any]):
        self.fields, self.name = fields, name
        self.values = gr.JSON([field.value for field in fields], visible="hidden")
        self.faults = gr.JSON(visible="hidden")
        self.filling: dict[str, Any] = {**QUIET, "show_progress_on": self.values}
        # One handler for all: before the browser shows the page, it goes through every handler for
        # every component.
        gr.on([*refreshing, *(field.change for field in fields)], **self.noting)

    @property
    def noting(self) -> dict[str, Any]:
        """A handler that notes the fields, as options of an event."""
        ids = [field.elem_id for field in self.fields]
        return {
            "fn": None,
            "inputs": self.fields,
            "outputs": self.values,
            "js": f"WorkbenchPage.note('{self.name}', {ids})",
            "api_visibility": "private",
        }

    def read(self, values: Any) -> Values:
        if not isinstance(values, list) or len(values) != len(self.fields):
            raise gr.Error(
                "These are not the values of this form; reload the page.", print_exception=False
            )
        return dict(zip(self.fields, values, strict=True))

    def told(self, faults: Mapping[Any, str]) -> Updates:
        """A handler's updates about faults, which the browser shows once it has answered."""
        return {self.faults: {field.elem_id: says for field, says in faults.items()}}


@dataclass(frozen=True)
class Given:
    name: str
    content: bytes


def given(data: Mapping[str, Any] | None) -> Given | None:
    """The content of a file that was uploaded, which goes from the disk.

    Args:
        data: the value as it was sent; to make a path of it, Gradio leaves an empty file behind

    Raises:
        InputError: if it is gone: of two visitors who upload the same file at once, one comes late
    """
    if data is None:
        return None
    file = Path(data["path"])
    try:
        return Given(file.name, file.read_bytes())
    except OSError:
        raise InputError("The file did not arrive; upload it again.") from None
    finally:
        file.unlink(missing_ok=True)
        with suppress(OSError):
            file.parent.rmdir()  # it is named after the content


def sent(event: gr.EventData, *names: str) -> dict[str, Any]:
    """What the browser sent with an event under these names; a client may send anything."""
    parts = {}
    for name in names:
        with suppress(AttributeError, TypeError):
            parts[name] = getattr(event, name)
    return parts


class Canvas(gr.HTML):
    """Plain data that a script draws.

    The template is constant, so Gradio never renders over the drawing, and no text passes a
    template.

    Args:
        draw: JavaScript that draws `props.value` in `root`; it may `trigger` an event
    """

    def __init__(self, draw: str, value: Any = None, **options: Any):
        script = f"""
const root = element.firstElementChild;
const show = () => {{ {draw} }};
watch('value', show);
show();
"""
        super().__init__(
            value,
            html_template="<div></div>",
            js_on_load=script,
            apply_default_css=False,
            padding=False,
            **options,
        )

    def preprocess(self, payload: Any) -> Any:
        """What the browser sends, as a dict; a client may send anything."""
        return payload if isinstance(payload, dict) else {}


END = object()


def tools(jobs: Iterable[Callable[..., Any]], most: int) -> dict[str, Any]:
    """A server of these jobs as options of FastAPI: its route and its lifespan.

    Args:
        jobs: the jobs
        most: the most calls that may wait for the one that runs; Gradio's queue has its own
    """
    named, server = {job.__name__: job for job in jobs}, Server("decoding-workbench")
    places = CapacityLimiter(1 + most)

    async def listed() -> list[types.Tool]:
        return [
            types.Tool(
                name=name,
                description=inspect.getdoc(job),
                inputSchema=Tool.from_function(job, structured_output=False).parameters,
                outputSchema={"type": "object"},
            )
            for name, job in named.items()
        ]

    async def called(name: str, given: dict[str, Any]) -> dict[str, Any]:
        try:
            places.acquire_nowait()
        except WouldBlock:
            raise ValueError(
                f"The queue is full (at most {most} may wait); ask again in a while."
            ) from None
        try:
            return await outcome(named[name], given)
        except gr.Error as error:
            raise ValueError(error.message) from None  # the protocol's way to say a sentence
        finally:
            places.release()

    server.list_tools()(listed)
    server.call_tool()(called)
    manager = StreamableHTTPSessionManager(server, stateless=True)

    return {
        "routes": [Mount("/gradio_api/mcp", manager.handle_request)],
        "lifespan": lambda _: manager.run(),
    }


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


@dataclass(frozen=True)
class Rooms:
    """All tabs.

    Attributes:
        tabs: the tabs of the page
        lab: the one that holds others
        inner: those others
    """

    tabs: gr.Tabs
    lab: gr.Tab
    inner: gr.Tabs

    @property
    def outputs(self) -> list[Any]:
        return [self.tabs, self.inner]

    def select(self, id: str) -> Updates:
        if id in _ids(self.inner):
            return {
                self.tabs: gr.update(selected=self.lab.id),
                self.inner: gr.update(selected=id),
            }
        return {self.tabs: gr.update(selected=id)} if id in _ids(self.tabs) else {}

    def enter(self, told: Mapping[str, Any]) -> Updates:
        return self.select(str(told.get("tab"))) or {self.tabs: gr.skip()}


def room(title: str, id: str, elem_id: str | None = None, in_lab: bool = False) -> gr.Tab:
    """A tab that tells the browser's address when it is on screen.

    That is the first of its handlers: Gradio carries out those of an event in turn, and one that
    asks the server may still wait when the next tab is chosen.
    """
    tab = gr.Tab(title, id=id, elem_id=elem_id)
    tab.select(
        None, None, None, api_visibility="private",
        js=f"() => WorkbenchAddress.enter('{id}', '{'lab' if in_lab else 'outer'}')",
    )  # fmt: skip
    return tab


def _ids(tabs: gr.Tabs) -> list[Any]:
    return [tab.id for tab in tabs.children if isinstance(tab, gr.Tab)]
