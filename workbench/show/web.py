"""What a page loads: the style sheet, the scripts and the looks of the fates, inlined, so that no request leaves the machine."""

import dataclasses
import json
from functools import cache

from workbench.assets import assets
from workbench.show.fates import FATES

WEB = assets() / "web"
STYLES = ("workbench.css", "card.css", "replay.css", "charts.css", "draws.css", "branch.css", "race.css")
SCRIPTS = ("strip.js", "card.js", "tree.js", "rounds.js", "viewer.js", "replay.js", "branch.js", "race.js")


def embed(data: object) -> str:
    """JSON that is safe inside a <script> element, whatever texts it contains."""
    return json.dumps(data).replace("<", "\\u003c")


def fate_styles() -> str:
    """A class for each fate: its colour for either ground, its line and its weight."""
    rules = []
    for name, fate in FATES.items():
        weight = "600" if fate.bold else "inherit"
        rules.append(f".wb .{name} {{ --fate: {fate.colour}; --line: {fate.line}; --weight: {weight}; }}")
        rules.append(f".dark .wb .{name} {{ --fate: {fate.colour_dark}; }}")
    return "\n".join(rules)


@cache
def head() -> str:
    """For the <head> of the page, live or exported. Any page with it can call `Workbench.show(element, {panels: [...]})`."""
    scripts = "\n".join((WEB / name).read_text("utf-8") for name in SCRIPTS)
    fates = {name: dataclasses.asdict(fate) for name, fate in FATES.items()}
    styles = "\n".join((WEB / name).read_text("utf-8") for name in STYLES) + fate_styles()
    return f"<style>{styles}</style>\n<script>{scripts}\nWorkbench.fates = {embed(fates)};</script>"


@cache
def page_script() -> str:
    """For the <head> of the live page, after `head`."""
    return f"<script>{(WEB / 'page.js').read_text('utf-8')}</script>"


@cache
def opening_style() -> str:
    """Of the picture that stands for the live page until that is there."""
    return (WEB / "page.css").read_text("utf-8") + (WEB / "opening.css").read_text("utf-8")
