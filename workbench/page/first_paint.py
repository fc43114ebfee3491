"""The page's first paint.

The served HTML shows the run that the page opens with before any of Gradio's scripts has run.
"""

import hashlib
import html
from collections.abc import Iterable, Mapping
from string import Template

import gradio as gr
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workbench.kinds import links
from workbench.kinds.comparison.form import CompareTab
from workbench.kinds.comparison.results import drawn as drawn_run
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.runs.recorded import recordings
from workbench.show import web
from workbench.studies import presets

TEMPLATE = Template((web.WEB / "opening.html").read_text("utf-8"))


def nothing_asked(query: Mapping[str, str]) -> bool:
    """Whether the page opens with the first recorded run: the address names no run and no study."""
    return "run" not in query and links.from_query(query) is None and bool(recordings())


class FirstPaint:
    """The parts that Gradio's HTML lacks: style sheets, scripts, and a picture of the opening page.

    The picture is drawn by the script that later draws the panels, which take their data from it.
    Its prompt and its Run take what is typed and pressed meanwhile (`WorkbenchEarly`); the rest is
    inert: it is not read aloud. `WorkbenchPage.ready` removes it once Gradio's page shows the same,
    and hands over what was typed and pressed. The panels are most of it; they come in a file of
    their own, which a browser keeps until they change.

    Args:
        host: the page's host
        page: the page
    """

    def __init__(self, host: Host, page: gr.Blocks):
        self.page = page
        # Drawn now, and not while the first visitor waits.
        self.picture, self.panels = _picture(host, page) if recordings() else (b"", b"")

    @property
    def route(self) -> Route:
        """The route of the panels, `/opening/<anything>`, whose name changes with the content."""

        def panels(request: Request) -> Response:
            kept = {"Cache-Control": "public, max-age=31536000, immutable"}
            return Response(self.panels, media_type="text/javascript", headers=kept)

        return Route("/opening/{name}", panels)

    def completed(self, text: bytes, query: Mapping[str, str]) -> bytes:
        """The complete HTML.

        Args:
            text: Gradio's HTML
            query: the parameters of the address
        """
        head = (
            f"<title>{words.TITLE}</title>"
            f'<link rel="stylesheet" href="theme.css?v={self.page.theme_hash}">'
            f"{web.head()}{web.page_script()}</head>"
        )
        text = text.replace(b"</head>", head.encode(), 1)
        if nothing_asked(query):
            text = text.replace(b"<gradio-app", self.picture + b"<gradio-app", 1)
        return text


def _picture(host: Host, page: gr.Blocks) -> tuple[bytes, bytes]:
    """The picture, and the script that draws its panels."""
    drawn, prompt = drawn_run(recordings()[0].run), next(iter(presets.PROMPTS.values()))
    start = CompareTab.opening["settings"]
    tabs = next(block for block in page.blocks.values() if isinstance(block, gr.Tabs))
    panels = f"WorkbenchPage.open({web.embed(drawn.panels)})".encode()
    picture = TEMPLATE.substitute(
        style=web.opening_style(),
        header=words.header(host.first),
        tabs=_each(str(getattr(tab, "label", "")) for tab in tabs.children),
        gallery=_each(recording.title for recording in recordings()),
        prompt=html.escape(prompt),
        preset=html.escape(presets.described(presets.OPENING)),
        asked=words.note(words.tokens(host.tokens(prompt, start, host.first), start)),
        headline=drawn.headline,
        steps=drawn.steps,
        panels=f"opening/{hashlib.sha256(panels).hexdigest()[:12]}.js",
    )
    return picture.encode(), panels


def _each(texts: Iterable[str]) -> str:
    return "".join(f"<span>{html.escape(text)}</span>" for text in texts)


class Completing:
    """Middleware that passes the page's HTML, and nothing else, through `FirstPaint.completed`."""

    def __init__(self, app: ASGIApp, paint: FirstPaint):
        self.app, self.paint = app, paint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != "/":
            await self.app(scope, receive, send)
            return
        started: list[Message] = []
        text = bytearray()

        async def complete(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
                return
            text.extend(message.get("body", b""))
            if message.get("more_body"):
                return
            (start,) = started
            body = bytes(text)
            if start["status"] == 200:
                body = self.paint.completed(body, Request(scope).query_params)
            headers = [each for each in start["headers"] if each[0].lower() != b"content-length"]
            headers.append((b"content-length", b"%d" % len(body)))
            await send({**start, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, complete)
