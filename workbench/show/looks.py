"""The colour and the mark of each decoder, the same in every chart, on a light or a dark ground."""

from typing import NamedTuple

from decoders import catalog

# After Okabe and Ito (2008), with a darker amber and another blue in place of sky: each colour has
# a contrast of 3 with white and with dark slate.
COLOURS = ("#1F7FBF", "#D55E00", "#009E73", "#C46A9B", "#B08000", "#8E6FD6", "#808691")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
# Plotly's name of each mark, and its outline in a square from -1 to 1.
MARKS = {
    "circle": "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z",
    "square": "M-.9-.9h1.8v1.8h-1.8z",
    "diamond": "M0-1.15 1.15 0 0 1.15-1.15 0z",
    "triangle-up": "M0-1.1 1.1.85h-2.2z",
    "cross": "M-.4-1h.8v.6h.6v.8h-.6v.6h-.8v-.6h-.6v-.8h.6z",
    "x": "M-1-.6-.6-1 0-.4.6-1 1-.6.4 0 1 .6.6 1 0 .4-.6 1-1 .6-.4 0z",
    "triangle-down": "M0 1.1 1.1-.85h-2.2z",
    "star": "M0-1.2.35-.4 1.15-.37.52.15.73.95 0 .5-.73.95-.52.15-1.15-.37-.35-.4z",
    "pentagon": "M0-1.05 1-.3.62.9h-1.24L-1-.3z",
    "hexagon": "M-.55-.95h1.1L1.1 0 .55.95h-1.1L-1.1 0z",
    "triangle-right": "M1.1 0-.85 1.1v-2.2z",
    "hourglass": "M-.9-1h1.8L.25 0 .9 1H-.9L-.25 0z",
    "triangle-left": "M-1.1 0 .85 1.1v-2.2z",
    "bowtie": "M-1-.9 0-.25 1-.9V.9L0 .25-1 .9z",
    "diamond-wide": "M-1.4 0 0-.7 1.4 0 0 .7z",
    "star-diamond": "M0-1.25 .4-.4 1.25 0 .4.4 0 1.25-.4.4-1.25 0-.4-.4z",
}


class Look(NamedTuple):
    """The look of one line, which is unlike that of others with and without colours."""

    colour: str
    dash: str
    symbol: str


def look(i: int) -> Look:
    """The look of the i-th line.

    The first sixteen have different marks; colours and dashes come again.
    """
    again, marks = i // len(COLOURS), list(MARKS)
    return Look(COLOURS[i % len(COLOURS)], DASHES[(i + again) % len(DASHES)], marks[i % len(marks)])


def look_of(decoder: str) -> Look:
    """The look of a decoder, whichever others stand beside it."""
    return look(list(catalog).index(decoder))


def mark(style: Look) -> str:
    """The mark as a picture, as high as a letter."""
    return (
        f'<svg class="sign" viewBox="-1.3 -1.3 2.6 2.6" aria-hidden="true">'
        f'<path d="{MARKS[style.symbol]}" fill="{style.colour}"/></svg>'
    )
