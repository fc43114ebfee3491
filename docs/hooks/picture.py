"""A round as a picture: the tree of what was tried, each token with its fate."""

from collections import defaultdict
from html import escape
from typing import Any

from decoders import Round
from workbench.show.looks import FATES

WIDTH, HEIGHT, MARGIN = 118, 34, 8
MOST = 48  # draws; a forest of more is cut, and says so
FATE_WORDS = "Colours: " + ", ".join(
    f'<span style="color:{style.colour}">{style.label}</span>' for style in FATES.values()
) + "."  # fmt: skip


def picture(entry: Round, tokenizer: Any) -> str:
    """An SVG of a round: layers from left to right, children one below the other as drawn."""
    trials, children, seen = [], defaultdict(list), {}
    for trial in entry.trials:
        if trial.node not in seen and len(seen) < MOST:
            seen[trial.node] = trial
            trials.append(trial)
            children[trial.parent].append(trial.node)
    roots = [t.node for t in trials if t.parent not in seen]
    places: dict[int, tuple[int, int]] = {}
    row = 0

    def place(node: int, depth: int) -> None:
        nonlocal row
        places[node] = (depth, row)
        for i, child in enumerate(children[node]):
            row += 1 if i else 0
            place(child, depth + 1)

    for i, root in enumerate(roots):
        row += 1 if i else 0
        place(root, 0)
    width = MARGIN * 2 + WIDTH * (1 + max(d for d, _ in places.values()))
    height = MARGIN * 2 + HEIGHT * (row + 1)
    parts = [edge(places[t.parent], places[t.node]) for t in trials if t.parent in seen]
    parts += [token(places[t.node], t, tokenizer) for t in trials]
    cut = (
        ""
        if len({t.node for t in entry.trials}) == len(trials)
        else f"<p>The first {MOST} tokens of a larger forest.</p>"
    )
    style = f"min-width:{min(width, 700)}px;max-width:{width}px;width:100%"
    return (
        '<div style="overflow-x:auto"><svg role="img" aria-label="the tree of a round" '
        f'viewBox="0 0 {width} {height}" '
        f'style="{style}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg></div>{cut}'
    )


def centre(place: tuple[int, int]) -> tuple[int, int]:
    return MARGIN + place[0] * WIDTH, MARGIN + place[1] * HEIGHT + HEIGHT // 2


def edge(above: tuple[int, int], below: tuple[int, int]) -> str:
    (x1, y1), (x2, y2) = centre(above), centre(below)
    return (
        f'<path d="M{x1 + WIDTH - 22} {y1} C{x2 - 4} {y1} {x2 - 18} {y2} {x2} {y2}" fill="none" '
        'stroke="#999"/>'
    )


def token(place: tuple[int, int], trial: Any, tokenizer: Any) -> str:
    x, y = centre(place)
    text = escape(repr(tokenizer.decode([trial.token]))[1:-1].replace(" ", "\u2423"))[:14]
    colour = FATES[trial.fate].colour
    numbers = " ".join(
        f"{n}={v:.2g}" for n, v in (("p", trial.p), ("q", trial.q), ("u", trial.u)) if v is not None
    )
    crossed = ' text-decoration="line-through"' if trial.fate in ("rejected", "discarded") else ""
    return (
        f"<g><title>{escape(FATES[trial.fate].label)} {numbers}</title>"
        f'<rect x="{x}" y="{y - 12}" width="{WIDTH - 22}" height="24" rx="5" fill="{colour}22" '
        f'stroke="{colour}"/>'
        f'<text x="{x + 6}" y="{y + 4}" font-size="12" font-family="monospace" '
        f'fill="currentColor"{crossed}>{text}</text></g>'
    )
