"""A section of a report (Section), as HTML and as Markdown."""

import html
from dataclasses import dataclass

from workbench.show import tables
from workbench.show.tables import Table


@dataclass(frozen=True)
class Figure:
    """A chart as HTML."""

    markup: str


# A paragraph, a list of sentences, a table or a chart.
Content = str | list[str] | Table | Figure


@dataclass(frozen=True)
class Section:
    title: str
    content: list[Content]


def as_markdown(content: list[Content], charts: bool = False) -> str:
    """A section's content as Markdown.

    Args:
        content: the content
        charts: keep the charts, as HTML
    """
    texts = [_markdown(c) for c in content if charts or not isinstance(c, Figure)]
    return "\n\n".join(text for text in texts if text)


def _markdown(content: Content) -> str:
    if isinstance(content, list):
        return "\n".join(f"- {sentence}" for sentence in content)
    if isinstance(content, Table):
        return tables.markdown(content)
    return content.markup if isinstance(content, Figure) else content


def as_html(content: list[Content]) -> str:
    """A section's content as HTML, its charts last."""
    parts = []
    for c in content:
        if isinstance(c, list):
            items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in c)
            parts.append(f"<ul>{items}</ul>")
        elif not isinstance(c, Figure):
            parts.append(_printed(c) if isinstance(c, Table) else f"<p>{html.escape(c)}</p>")
    charts = "".join(c.markup for c in content if isinstance(c, Figure))
    return "".join(parts) + (f'<div class="wb-charts">{charts}</div>' if charts else "")


def _printed(found: Table) -> str:
    """A table; the style sheet greys the papers' columns, which are the even ones."""
    text, of_paper = tables.markup(found), [h.endswith(", paper") for h in found.heads[1:2]]
    return f'<div class="wb-printed">{text}</div>' if any(of_paper) else text
