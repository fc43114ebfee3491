"""Draws in words, as a table, and as trees with counts side by side, made of HTML that needs no script."""

import html
import unicodedata
from collections.abc import Mapping, Sequence

from workbench.runs.cells import MOST, Tokens
from workbench.runs.draws import Finding, Node, drawn, findings, grown
from workbench.runs.estimates import label, rows
from workbench.runs.record import Run
from workbench.show.quantities import BY_NAME
from workbench.show.spread import MISSING, shown
from workbench.show.tables import Table
from workbench.studies.text import counted

UNLIKELY = 0.05  # a p value below it is said to be unlike the law
OPEN = 0.06  # nodes that so many of the draws share are unfolded
SHOWN = 12  # children of a node; the rarer ones are in a fold
MOST_LINES = 1500  # of one tree
DEEPEST = 100  # forks above each other: a file may have more than Python can follow
NEWLINES = {"\n": "⏎", "\t": "⇥"}

PROOF = (
    "<p>Draws can only show a difference, never that there is none. That decoders of the law “target” have none is proved "
    "without drawing: the tests replace the models by made-up tables and the random numbers by a source that takes every way in turn, add "
    "up the probability of every output, and compare it with the law; the total variation is below 10<sup>−9</sup>. You can do the "
    "same:</p><pre>from decoders import catalog\nfrom decoders.testing import assert_law\n\n{calls}</pre>"
)
HOW = (
    "Draws are counted by their first three tokens. First tokens that are expected in at least five draws have a cell of their own; the others "
    "are pooled, by what is expected and never by what was drawn. p is the chance that an exact sampler’s counts are as far off (Pearson’s "
    "chi-square), after Holm’s correction for several decoders. Beam decoders choose their text among several beams; their first step draws from "
    "the target, so the beams of that step are counted. The distance is the total variation: the largest difference in the probability of "
    "any set of cells."
)

LEGEND = "Before each token stands how many draws continue with it, in brackets how many the target lets expect."


# ---- words and tables


def in_words(found: Finding) -> str:
    """What the draws of one decoder say, in a sentence."""
    texts = counted(found.texts, "draw")
    what, which = "the target", texts
    if found.compared == "first step":
        what, which = "one step of beam sampling", f"the {counted(found.draws, 'first beam')} of {texts}"
    if found.distance is None or found.usual is None or found.most is None:
        return f"{texts.capitalize()}: too few to compare with {what}."
    far = f"total variation {found.distance:.2f}; as many exact draws show {found.usual:.2f}, and less than {found.most:.2f} in {MOST:.0%} of cases"
    if found.p is None:
        nearer = (
            "as near to the target as exact draws are"
            if found.distance <= found.most
            else "further from the target than exact draws"
        )
        return f"Does not promise the target's distribution; {nearer} in {texts} ({far})."
    if found.p >= UNLIKELY:
        return f"No difference from {what} seen in {which} (p = {probability(found.p)})."
    return f"Unlike {what} in {which} (p {_less(found.p)}): {far}."


def probability(p: float) -> str:
    return f"{p:.2f}" if p >= 0.1 else f"{p:.2g}"


def _less(p: float) -> str:
    return f"= {probability(p)}" if p >= 0.001 else "< 0.001"


def headline(run: Run) -> str:
    """The verdicts as HTML, and the way to what is proved."""
    each = "".join(f"<li>{html.escape(words)}</li>" for words in verdicts(run))
    link = '<nav class="wb-jump" aria-label="On this page"><a href="#draw-proof">How they are compared, and what is proved</a></nav>'
    legend = f'<p class="says">{LEGEND}</p>' if run.exact else ""
    return f'<div class="wb wb-verdicts"><ul>{each}</ul>{legend}{link}</div>' if each else ""


def verdicts(run: Run) -> list[str]:
    """A sentence for each decoder, or one why nothing is compared."""
    if not run.results:
        return []
    if run.settings.get("temperature", 1.0) == 0:
        return [
            "At temperature 0 nothing is left to chance: each decoder writes one text, and there is nothing to compare."
        ]
    return [f"{label(found.decoder)}: {in_words(found)}" for found in findings(run)]


def table(run: Run) -> Table:
    """A row for each decoder: how many texts it drew and how many differ, what they say of its law, and its speed."""
    found = {each.decoder: each for each in findings(run)}
    speed = BY_NAME["speed"]
    lines = []
    for row in rows(run.results):
        texts = [tuple(piece.id for piece in sample.pieces) for result in row.results for sample in drawn(result)]
        lines.append(
            [row.label, str(len(texts)), str(len(set(texts))), *_figures(found.get(row.decoder)), shown(speed, row)]
        )
    heads = ["decoder", "draws", "different texts", "compared with", "p (Holm)", "distance", "exact draws", speed.label]
    return Table(heads, lines)


WHAT = {"target": "the target", "first step": "its first step", "own": "the target"}


def _figures(found: Finding | None) -> list[str]:
    if found is None or found.distance is None:
        return [MISSING] * 4
    p = MISSING if found.p is None else probability(found.p) if found.p >= 0.001 else "< 0.001"
    return [WHAT[found.compared], p, f"{found.distance:.3f}", f"{found.usual:.3f}, {MOST:.0%} below {found.most:.3f}"]


# ---- trees


def visible(text: str) -> str:
    """The text with glyphs in place of characters that would vanish, turn the line or its direction."""
    return "".join(_glyph(c) for c in text)


def _glyph(c: str) -> str:
    if c in NEWLINES:
        return NEWLINES[c]
    kind = unicodedata.category(c)
    if kind == "Cc":
        return chr(0x2400 + ord(c)) if ord(c) < 32 else "\u2421"
    return "¤" if (kind == "Cf" and unicodedata.bidirectional(c) not in ("BN", "L")) or c in "\u200e\u200f\u061c" else c


def trees(run: Run) -> str:
    """The draws of each decoder as one tree, side by side: at each place the tokens that follow, and how many texts continue so."""
    law = {tuple(prefix.tokens): prefix.p for prefix in run.exact}
    found = {each.decoder: each for each in findings(run)}
    # Texts of a decoder whose first steps alone are compared have a law that is not the target's.
    other = {name for name, each in found.items() if each.compared == "first step"}
    each = "".join(
        _Tree(grown(s.pieces for s in drawn(result)), {} if result.decoder in other else law).html(
            label(result.decoder),
            in_words(found[result.decoder]) if result.decoder in found else "",
            result.errors,
        )
        for result in run.results
    )
    return f'<div class="wb wb-draws">{each}</div>' if each else ""


class _Tree:
    """One tree as nested folds. `left` is how many lines it may still have."""

    def __init__(self, root: Node, law: Mapping[Tokens, float]):
        self.root, self.law, self.left = root, law, MOST_LINES

    def html(self, name: str, says: str, errors: Sequence[str]) -> str:
        name, count = html.escape(name), html.escape(counted(self.root.count, "draw"))
        words = f'<p class="says">{html.escape(says)}</p>' if says else ""
        failed = f'<p class="wb-error" role="alert">{html.escape(errors[0])}</p>' if errors else ""
        return (
            f'<section class="wb-panel" aria-label="{name}"><header><h3>{name}</h3><span class="pace">{count}</span></header>{words}{failed}'
            f'<div class="forest" tabindex="0" role="group" aria-label="{name}: the texts">'
            f"<ul>{self.after(self.root, (), 0)}</ul></div></section>"
        )

    def after(self, node: Node, path: Tokens, depth: int) -> str:
        """The tokens after a node as items of a list, the rare ones in a fold."""
        often, rare = node.following[:SHOWN], node.following[SHOWN:]
        items = "".join(self.line(child, path, depth) for child in often)
        if not rare or self.left <= 0:
            return items
        inner = "".join(self.line(child, path, depth) for child in rare)
        count = sum(child.count for child in rare)
        return f'{items}<li><details class="rare"><summary>{len(rare)} others, {counted(count, "draw")}</summary><ul>{inner}</ul></details></li>'

    def line(self, node: Node, path: Tokens, depth: int) -> str:
        """A token, and those that follow it without a fork, with what comes after them in a fold."""
        if self.left <= 0:
            return ""
        self.left -= 1
        path, count, text = (*path, node.id), node.count, [node.text]
        share, p = count / self.root.count, self.law.get(path)
        while len(node.children) == 1 and not node.ended:
            (child,) = node.children.values()
            if not _alike(p, self.law.get((*path, child.id))):
                if count > 1:
                    break
                p = None  # a text that was drawn once is one line, and not all of it is expected so often
            node, path = child, (*path, child.id)
            text.append(node.text)
        words = _count(count, self.root.count * p if p else None, share, "".join(text))
        if not node.children or depth >= DEEPEST:
            return f'<li><div class="leaf">{words}{" …" if node.children else ""}</div></li>'
        end = f'<li><div class="leaf"><span class="count">{node.ended}</span><em>end here</em></div></li>'
        inner = self.after(node, path, depth + 1) + (end if node.ended else "")
        return (
            f"<li><details{' open' if share >= OPEN else ''}><summary>{words}</summary><ul>{inner}</ul></details></li>"
        )


def _alike(p: float | None, other: float | None) -> bool:
    """Whether one number of expected draws does for a text and for what follows it."""
    return p is other is None or (p is not None and other is not None and abs(p - other) < 0.005)


def _count(count: int, expected: float | None, share: float, text: str) -> str:
    """How many draws, how many the target lets expect, a bar, and the text."""
    more = f'<span class="expected" title="draws expected of the target">{expected:.1f}</span>' if expected else ""
    bar = f'<i style="width:{100 * share:.1f}%"></i>'
    return f'<span class="count">{count}</span>{more}{bar}<bdi>{html.escape(visible(text)) or "▫"}</bdi>'


def proof(run: Run) -> str:
    """How decoders are proved to have their law, with the calls that prove those of this run."""
    names = [found.decoder for found in findings(run) if found.compared == "target"] or ["speculative"]
    calls = "\n".join(f'assert_law(catalog["{html.escape(name)}"]())' for name in names)
    return f'<details class="wb wb-proof" id="draw-proof"><summary>How they are compared, and what is proved</summary><p>{HOW}</p>{PROOF.format(calls=calls)}</details>'
