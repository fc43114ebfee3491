"""The style sheets, scripts and looks of the fates that a page loads.

All are inlined, so that no request leaves the machine.
"""

import dataclasses
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from workbench.show.looks import FATES
from workbench.show.terms import TERMS

LIT = (
    "background: color-mix(in srgb, var(--fate) 42%, transparent); outline: 2px solid var(--fate);"
)
WEB = Path(__file__).parents[1] / "web"
STYLES = (
    "workbench.css",
    "picture.css",
    "card.css",
    "charts.css",
    "draws.css",
    "branch.css",
    "orderings.css",
    "terms.css",
)
SCRIPTS = (
    "strip.js",
    "terms.js",
    "legend.js",
    "sums.js",
    "card.js",
    "pointing.js",
    "branch.js",
    "judge.js",
    "film.js",
    "tree.js",
    "closeup.js",
    "lane.js",
    "saving.js",
    "picture.js",
)


def joined(names: Iterable[str]) -> str:
    """The files one after another, without indentation and comments on lines of their own."""
    every = "\n".join((WEB / name).read_text("utf-8") for name in names)
    bare = re.sub(r"^\s*/\*.*?\*/\s*$", "", every, flags=re.M | re.S)
    lines = (line.strip() for line in bare.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def embed(data: object) -> str:
    """JSON that is safe inside of a <script> element, whatever texts it contains."""
    return json.dumps(data).replace("<", "\\u003c")


def fate_styles() -> str:
    """A class for each fate: its colour for either ground, its line and its weight."""
    return "\n".join(
        f".wb .{name} {{ --fate: {fate.colour}; --line: {fate.line}; "
        f"--weight: {'600' if fate.bold else 'inherit'}; }}\n"
        f".dark .wb .{name} {{ --fate: {fate.colour_dark}; }}\n"
        # What the legend points at.
        f'.wb[data-lit="{name}"] :is(.wb-paper, .words) .tok.{name} {{ {LIT} }}'
        for name, fate in FATES.items()
    )


@cache
def head() -> str:
    """The content of the <head> of any page, live or exported.

    A page that has it can call `Workbench.show(element, {panels: [...]})`.
    """
    fates = {name: dataclasses.asdict(fate) for name, fate in FATES.items()}
    return (
        f"<style>{joined(STYLES)}{fate_styles()}</style>\n"
        f"<script>{joined(SCRIPTS)}\nWorkbench.fates = {embed(fates)};"
        f"Workbench.terms = {embed(TERMS)};</script>"
    )


@cache
def embedded() -> str:
    """The content of the <head> of an app that shows a drawing by itself, after Gradio's own."""
    return (
        f"{head()}<script>{joined(('alone.js',))}</script><style>{joined(('alone.css',))}</style>"
    )


@cache
def page_script() -> str:
    """More content of the <head> of the live page, after `head`."""
    return f"<script>{joined(('frames.js', 'address.js', 'page.js'))}</script>"
