"""Draws as a verdict, a table, and trees with counts side by side in HTML without scripts."""

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from workbench.runs.draws import (
    LEVEL,
    SOUGHT,
    Compared,
    DrawNode,
    Finding,
    Tokens,
    findings,
    grouped,
    grown,
    seeds,
    texts_of,
)
from workbench.runs.figures import label, rows
from workbench.runs.record import Run
from workbench.show import looks, quantities
from workbench.show.looks import visible
from workbench.show.tables import Table
from workbench.studies.settings import counted

LEGEND = (
    "Each token shows how many draws continue with it; the target’s expected count is in brackets."
)
FAULT = "a fault of it, or of models or seeds"
# What is said of decoders, by how they are compared and whether their draws prove a difference.
VERDICTS: dict[tuple[Compared, bool], tuple[str, str, str]] = {
    ("target", False): ("draws", "draw", "like the large model: these draws show no difference"),
    ("target", True): ("draws", "draw", f"unlike the large model: {FAULT}"),
    ("first step", False): ("draws", "draw", "like one step of beam sampling"),
    ("first step", True): ("draws", "draw", f"unlike one step of beam sampling: {FAULT}"),
    ("own", False): ("does", "do", "not promise to draw like the large model"),
    ("own", True): ("does", "do", "not promise to draw like the large model; these draws differ"),
}


def headline(run: Run) -> str:
    if not run.results:
        return ""
    return (
        f'<div class="wb wb-verdicts"><p class="verdict">{html.escape(verdict(run))}</p>'
        f'<p class="says">{html.escape(reach(run))}</p></div>{proof(run)}'
    )


def verdict(run: Run) -> str:
    """What the draws say of all decoders, in plain words."""
    if run.settings.get("temperature", 1.0) == 0:
        return (
            "At temperature 0 nothing is left to chance: each decoder writes one text, and there "
            "is nothing to compare."
        )
    known = [finding for finding in findings(run) if finding.distance is not None]
    if not known:
        return (
            "There is nothing to compare: too few draws, or no first words that are likely enough "
            "to the large model."
        )
    words = []
    for kind, (of_one, of_many, says) in VERDICTS.items():
        if names := [label(f.decoder) for f in known if (f.compared, f.unlike) == kind]:
            words.append(f"{_listed(names)} {of_one if len(names) == 1 else of_many} {says}.")
    words += [
        f"Seed {f.seed} of {label(f.decoder)} wrote “{visible(f.never)}”, which the large model "
        "never writes: one such text is proof."
        for f in known
        if f.never
    ]
    return " ".join(words)


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def reach(run: Run) -> str:
    """The seeds, how sure the verdict is, and how many draws an error needs to be noticed."""
    ranges = " and ".join(f"{each.start} to {each.stop - 1}" for each in seeds(run.results))
    claims = [each for each in findings(run) if each.p is not None and each.needed is not None]
    if not claims:
        return f"Seeds {ranges}." if ranges else ""
    most = max(claims, key=_missing)
    missing, enough = _missing(most), most.texts + _missing(most)
    have = f"you have {most.texts:,}" + ("." if missing else ", which is enough.")
    return (
        f"Seeds {ranges}. A correct decoder is wrongly flagged at most once in {1 / LEVEL:,.0f} "
        f"runs, even if you keep drawing. To notice an error of {SOUGHT:g} you need about "
        f"{enough:,} draws; {have}"
    )


def _missing(finding: Finding) -> int:
    return max(0, math.ceil((finding.needed or 0) * finding.texts / finding.draws) - finding.texts)


PROOF = (
    "<p>Draws can show a difference, but never that there is none. For decoders of the "
    "distribution “target”, the tests prove without drawing that there is none: they replace the "
    "models by made-up tables and the random numbers by a source that takes every way in turn, "
    "add up the probability of every output, and compare it with the distribution; the total "
    "variation is below 10<sup>−9</sup>. You can do the same:</p>"
    "<pre>from decoders import catalog\nfrom decoders.testing import assert_law\n\n{calls}</pre>"
)
HOW = (
    "Draws are counted by their first three tokens, in cells that each hold at least one in twenty "
    "of the target’s texts. The cells depend on the target alone, never on the draws. Beam "
    "decoders choose their text among several beams; their first step draws from the target, so "
    "the beams of that step are counted. The distance is the total variation: the largest "
    "difference in the probability of any set of cells; beside it stands how far as many draws "
    "from the target itself are off on average. “Unlike” needs more: the "
    "draws must be ten thousand times likelier under a mixture of other distributions (a Dirichlet "
    "distribution around the target’s, Lindon and Malek 2022) than under the target’s own. If a "
    "decoder has the target’s own, that ratio is a martingale, so the chance that it ever gets "
    "there is at most one in 10,000, however often you add draws (Ville 1939). Holm’s correction "
    "keeps that chance for all decoders of a run together, whether or not they share seeds. If "
    "the sampling settings rule out one of the first three tokens of a text, that single text is "
    "proof; tokens that rounding may move across the edge are not ruled out."
)


def proof(run: Run) -> str:
    names = [finding.decoder for finding in findings(run) if finding.compared == "target"] or [
        "speculative"
    ]
    calls = "\n".join(f'assert_law(catalog["{html.escape(name)}"]())' for name in names)
    return (
        '<details class="wb wb-proof" id="draw-proof"><summary>How they are compared, and what is '
        f"proved</summary><p>{HOW}</p>{PROOF.format(calls=calls)}</details>"
    )


def table(run: Run) -> Table:
    known = {each.decoder: each for each in findings(run)}
    speed = quantities.BY_NAME["speed"]
    lines = []
    for row in rows(run.results):
        texts = [tuple(piece.id for piece in sample.pieces) for sample in texts_of(row.results)]
        lines.append(
            [
                row.label, str(len(texts)), str(len(set(texts))), *_figures(known.get(row.decoder)),
                quantities.shown(speed, row),
            ]
        )  # fmt: skip
    heads = [
        "decoder", "draws", "different texts", "compared with", "distance", "exact draws",
        speed.label,
    ]  # fmt: skip
    return Table(heads, lines)


def _figures(finding: Finding | None) -> list[str]:
    if finding is None or finding.distance is None:
        return [quantities.MISSING] * 3
    return [
        "its first step" if finding.compared == "first step" else "the target",
        f"{finding.distance:.3f}",
        f"{finding.usual:.3f}",
    ]


# ---- first words

FIRST = 5  # first words that are shown by themselves


def first_words(run: Run) -> str:
    """The first words that each decoder drew, beside what the large model makes one expect.

    The likeliest to the large model come first; the rarest are added up.
    """
    law = {prefix.tokens[0]: prefix.p for prefix in run.exact if len(prefix.tokens) == 1}
    counts, texts = dict[str, Counter[int]](), dict[int, str]()
    for decoder, results in grouped(run).items():
        firsts = [sample.pieces[0] for sample in texts_of(results)]
        counts[decoder] = Counter(piece.id for piece in firsts)
        texts |= {piece.id: piece.text for piece in firsts}
    most = sum(counts.values(), Counter[int]())
    order = sorted(texts, key=lambda token: (-law.get(token, 0.0), -most[token]))[:FIRST]
    each = "".join(
        _first_words(label(decoder), counter, [(texts[token], token) for token in order], law)
        for decoder, counter in counts.items()
        if counter
    )
    return f'<div class="wb wb-first">{each}</div>' if each else ""


def _first_words(
    name: str, counter: Counter[int], order: Sequence[tuple[str, int]], law: Mapping[int, float]
) -> str:
    draws = counter.total()
    lines = [
        (looks.visible(text.strip() or text) or "▫", counter[token], law.get(token))
        for text, token in order
    ]
    if rest := draws - sum(count for _, count, _ in lines):
        known = [p for _, _, p in lines if p is not None]
        lines.append(("others", rest, 1 - sum(known) if len(known) == len(lines) else None))
    rows = "".join(
        f"<tr><th scope='row'><bdi>{html.escape(text)}</bdi></th>"
        f'<td class="track"><i style="width:{100 * count / draws:.1f}%"></i>'
        + ("" if p is None else f'<b style="left:{100 * min(1.0, max(0.0, p)):.1f}%"></b>')
        + f"</td><td>{count}</td>"
        + f'<td class="expected">{"" if p is None else f"{draws * max(0.0, p):.1f}"}</td></tr>'
        for text, count, p in lines
    )
    return (
        f"<table><caption>{html.escape(name)}</caption><thead><tr><th>begins with</th><td></td>"
        f"<th>drawn</th><th>expected</th></tr></thead><tbody>{rows}</tbody></table>"
    )


# ---- trees

OPEN = 0.06  # nodes that this share of the draws have in common are unfolded
SHOWN = 12  # children of a node; the rarer ones are in a fold
MOST_LINES = 1500  # of one tree
DEEPEST = 100  # forks above each other: a file may have more than Python can follow


def trees(run: Run) -> str:
    law = {tuple(prefix.tokens): prefix.p for prefix in run.exact}
    # If only a decoder's first steps are compared, the law of its texts is not the target's.
    other = {finding.decoder for finding in findings(run) if finding.compared == "first step"}
    each = "".join(
        _Tree(grown(s.pieces for s in texts_of(results)), {} if decoder in other else law).html(
            label(decoder),
            [error for result in results for error in result.errors],
        )
        for decoder, results in grouped(run).items()
    )
    legend = f'<p class="wb says">{LEGEND}</p>' if run.exact else ""
    return f'{legend}<div class="wb wb-draws">{each}</div>' if each else ""


class _Tree:
    """One tree as nested folds; `left` is the number of lines that it may still have."""

    def __init__(self, root: DrawNode, law: Mapping[Tokens, float]):
        self.root, self.law, self.left = root, law, MOST_LINES

    def html(self, name: str, errors: Sequence[str]) -> str:
        name, count = html.escape(name), html.escape(counted(self.root.count, "draw"))
        failed = f'<p class="wb-error" role="alert">{html.escape(errors[0])}</p>' if errors else ""
        return (
            f'<section class="wb-panel" aria-label="{name}"><header><h3>{name}</h3>'
            f'<span class="pace">{count}</span></header>{failed}'
            f'<div class="forest" tabindex="0" role="group" aria-label="{name}: the texts">'
            f"<ul>{self.after(self.root, (), 0)}</ul></div></section>"
        )

    def after(self, node: DrawNode, path: Tokens, depth: int) -> str:
        often, rare = node.following[:SHOWN], node.following[SHOWN:]
        items = "".join(self.line(child, path, depth) for child in often)
        if not rare or self.left <= 0:
            return items
        inner = "".join(self.line(child, path, depth) for child in rare)
        return (
            f'{items}<li><details class="rare"><summary>{len(rare)} others, '
            f"{counted(sum(child.count for child in rare), 'draw')}</summary>"
            f"<ul>{inner}</ul></details></li>"
        )

    def p(self, path: Tokens) -> float | None:
        """The probability of a beginning; None if it is not known.

        If it is 0, so is that of every longer one.
        """
        if any(self.law.get(path[:length]) == 0 for length in range(1, len(path))):
            return 0.0
        return self.law.get(path)

    def line(self, node: DrawNode, path: Tokens, depth: int) -> str:
        if self.left <= 0:
            return ""
        self.left -= 1
        path, count, text = (*path, node.id), node.count, [node.text]
        share, p = count / self.root.count, self.p(path)
        while len(node.children) == 1 and not node.ended:
            (child,) = node.children.values()
            if not _alike(p, below := self.p((*path, child.id))):
                if count > 1:
                    break
                # A text that was drawn once is one line, but its beginning is expected more often
                # than the whole.
                p = None if below else below
            node, path = child, (*path, child.id)
            text.append(node.text)
        words = _count(count, None if p is None else self.root.count * p, share, "".join(text))
        if not node.children or depth >= DEEPEST:
            return f'<li><div class="leaf">{words}{" …" if node.children else ""}</div></li>'
        end = (
            f'<li><div class="leaf"><span class="count">{node.ended}</span>'
            "<em>end here</em></div></li>"
        )
        inner = self.after(node, path, depth + 1) + (end if node.ended else "")
        return (
            f"<li><details{' open' if share >= OPEN else ''}><summary>{words}</summary>"
            f"<ul>{inner}</ul></details></li>"
        )


def _alike(p: float | None, other: float | None) -> bool:
    """Whether one number of expected draws serves for a text and for a longer one."""
    if p is None or other is None:
        return p is other
    return abs(p - other) < 0.005 and (p == 0) == (other == 0)


def _count(count: int, expected: float | None, share: float, text: str) -> str:
    title = "draws expected from the target" if expected else "the target never writes this"
    more = (
        "" if expected is None else f'<span class="expected" title="{title}">{expected:.1f}</span>'
    )
    bar = f'<i style="width:{100 * share:.1f}%"></i>'
    return (
        f'<span class="count">{count}</span>{more}{bar}'
        f"<bdi>{html.escape(looks.visible(text)) or '▫'}</bdi>"
    )
