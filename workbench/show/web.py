"""The style sheets, scripts, looks of the fates and explanations of words that a page loads.

All are inlined, so that no request leaves the machine. `terms.js` shows the explanation of a word
that a student may not know on hover, focus or a tap.
"""

import dataclasses
import html
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from workbench.show.looks import FATES

TERMS = {
    "token": "A piece of text, a word or a part of one: models read and write tokens.",
    "draft": "Tokens that were guessed ahead, usually by the small model. The large model has the "
    "last word on them.",
    "pass": "One run of a model over the text. The large model needs hardly longer to check "
    "several tokens in one pass than to write a single one.",
    "tokens per pass": "Block efficiency: new tokens divided by passes of the large model. Without "
    "drafts it is 1. It is counted, so it is the same on every machine.",
    "tokens/s": "New tokens divided by the seconds of computing. It depends on the machine.",
    "× greedy": "Tokens per second divided by greedy's in the same run: above 1 is faster.",
    "perplexity": "How surprising the large model finds a text: e to the power of minus the mean "
    "ln p of its tokens. Lower is likelier to the model; loops score well too.",
    "beam": "One of several continuations that are kept side by side, so that the likeliest whole "
    "text can be found.",
    "temperature": "How much chance decides: at 0 always the likeliest token is taken, at 1 tokens "
    "are drawn with the model's own probabilities, in between likely ones are preferred.",
    "top-k": "Tokens are drawn only from the k likeliest.",
    "top-p": "Tokens are drawn only from the likeliest ones whose probabilities add up to p.",
    "min-p": "Tokens are drawn only if they are at least this share as likely as the likeliest.",
    "seed": "The number that random draws begin with: the same seed gives the same text.",
    "distribution": "How likely each possible text is. Two decoders of the same distribution "
    "differ by chance alone.",
    "residual": "What is left of the large model's probabilities once those of the small model are "
    "taken away.",
    "cache": "What a model remembers of the tokens that it has read (keys and values), so that it "
    "need not read them again.",
    "padding": "Filling up the shorter requests of a batch with empty places, so that all have one "
    "length. It costs time and memory.",
    "batch": "Several prompts that are decoded at the same time.",
}
_WORDS = re.compile(rf"(?<![\w-])({'|'.join(sorted(TERMS, key=len, reverse=True))})(?:e?s)?(?!\w)")


def term(shown: str, help: str) -> str:
    return (
        f'<button type="button" class="wb-term" data-help="{html.escape(help)}">'
        f"{html.escape(shown)}</button>"
    )


def explained(text: str) -> str:
    known, parts, end = set[str](), list[str](), 0
    for match in _WORDS.finditer(text):
        if match[1] in known:
            continue
        known.add(match[1])
        parts += [html.escape(text[end : match.start()]), term(match[0], TERMS[match[1]])]
        end = match.end()
    return "".join([*parts, html.escape(text[end:])])


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
    return (
        f"{head()}<script>{joined(('alone.js',))}</script><style>{joined(('alone.css',))}</style>"
    )


@cache
def page_script() -> str:
    return f"<script>{joined(('address.js', 'settings.js', 'page.js'))}</script>"
