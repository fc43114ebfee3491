"""The style sheets, scripts and looks of the fates that a page loads.

All are inlined, so that no request leaves the machine.
"""

import dataclasses
import json
from functools import cache
from pathlib import Path

from workbench.show.fates import FATES

WEB = Path(__file__).parents[1] / "web"
STYLES = (
    "workbench.css",
    "card.css",
    "replay.css",
    "charts.css",
    "draws.css",
    "branch.css",
    "race.css",
)
SCRIPTS = (
    "strip.js",
    "sums.js",
    "stage.js",
    "card.js",
    "pointing.js",
    "tree.js",
    "rounds.js",
    "viewer.js",
    "replay.js",
    "branch.js",
    "race.js",
)

PAGE_SCRIPTS = ("address.js", "page.js")  # of the live page alone


def embed(data: object) -> str:
    """JSON that is safe inside of a <script> element, whatever texts it contains."""
    return json.dumps(data).replace("<", "\\u003c")


def fate_styles() -> str:
    """A class for each fate: its colour for either ground, its line and its weight."""
    rules = []
    for name, fate in FATES.items():
        weight = "600" if fate.bold else "inherit"
        rules.append(
            f".wb .{name} {{ --fate: {fate.colour}; --line: {fate.line}; --weight: {weight}; }}"
        )
        rules.append(f".dark .wb .{name} {{ --fate: {fate.colour_dark}; }}")
    return "\n".join(rules)


@cache
def head() -> str:
    """The content of the <head> of any page, live or exported.

    A page that has it can call `Workbench.show(element, {panels: [...]})`.
    """
    scripts = "\n".join((WEB / name).read_text("utf-8") for name in SCRIPTS)
    fates = {name: dataclasses.asdict(fate) for name, fate in FATES.items()}
    styles = "\n".join((WEB / name).read_text("utf-8") for name in STYLES) + fate_styles()
    return f"<style>{styles}</style>\n<script>{scripts}\nWorkbench.fates = {embed(fates)};</script>"


@cache
def page_script() -> str:
    """More content of the <head> of the live page, after `head`."""
    scripts = "\n".join((WEB / name).read_text("utf-8") for name in PAGE_SCRIPTS)
    return f"<script>{scripts}</script>"


@cache
def opening_style() -> str:
    """The style of the picture that stands for the live page until that is ready."""
    return (WEB / "page.css").read_text("utf-8") + (WEB / "opening.css").read_text("utf-8")
