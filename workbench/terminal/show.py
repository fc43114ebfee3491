"""How a comparison looks in a terminal: coloured text, figures, a progress bar."""

import unicodedata
from collections.abc import Iterable, Iterator

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from decoders import Fate, catalog
from workbench.measuring import session
from workbench.runs.store import Run, RunResult, RunSummary, TokenRecord
from workbench.show import quantities as numbers
from workbench.show import strip as views
from workbench.show.fates import FATES

PROMPT_SHOWN = 40


def plain(text: str) -> str:
    """The text without what a terminal would obey: control characters, ESC among them, become pictures of themselves."""
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) != "Cc" else chr(0x2400 + ord(c)) if ord(c) < 32 else "\ufffd"
        for c in text
    )


def coloured(tokens: Iterable[TokenRecord]) -> Text:
    """Tokens in the colour and line of their fate."""
    text = Text()
    for token in tokens:
        text.append(plain(token.text), FATES[Fate(token.fate)].terminal)
    return text


def legend(results: Iterable[RunResult]) -> Text:
    """The fates that occur, each in its own style."""
    occurring = {t.fate for r in results for t in r.tokens}
    entries = [Text(style.label, style.terminal) for fate, style in FATES.items() if fate in occurring]
    return Text("   ").join(entries)


def result(r: RunResult) -> Group:
    """One decoder's text under its name, with its badge or error."""
    summary = catalog[r.decoder].summary if r.decoder in catalog else ""
    parts = [Text.assemble("\n", (plain(r.decoder), "bold"), (f"  {summary}", "dim")), coloured(r.tokens)]
    if r.greedy_check is not None:
        parts.append(Text(views.badge(r.greedy_check)["text"], "dim"))
    if r.error is not None:
        parts.append(Text(plain(r.error), "red"))
    return Group(*parts)


def run(r: Run) -> Group:
    """A whole run: its texts (of the first repeat), the legend and the figures."""
    first = [result for result in r.results if result.repeat == 0]
    head = Text.assemble((r.id, "bold"), f"  {r.created}  {plain(r.models)}\n", (plain(r.prompt), "dim"))
    return Group(head, *map(result, first), Text(), legend(first))


def figures(results: list[RunResult]) -> Group:
    """The figures, a row each and a column for each decoder, and why energy is not among them."""
    heads, rows = numbers.table(results)
    turned = [list(row) for row in zip(heads, *rows, strict=True)]
    sources = dict.fromkeys(r.energy.source for r in results if r.energy.joules is None)
    return Group(grid(turned[0], turned[1:]), *(Text(f"energy {plain(source)}", "dim") for source in sources))


def grid(heads: list[str], rows: list[list[str]]) -> Table:
    """Any table of texts; nothing in it is read as markup."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(Text(head), overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    return table


def summaries(runs: Iterable[RunSummary]) -> Table:
    rows = [[r.id, r.created[:16].replace("T", " "), _short(r.prompt), ", ".join(r.decoders), r.models] for r in runs]
    return grid(["run", "created (UTC)", "prompt", "decoders", "models"], rows)


def follow(events: Iterable[session.SessionEvent], console: Console) -> Iterator[session.Finished | session.Ended]:
    """Draw the progress of a comparison on `console`; hands on what is finished."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} tokens{task.fields[left]}"),
    )
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", left="")
        for event in events:
            if isinstance(event, session.Started):
                again = f" (repeat {event.repeat + 1})" if event.repeat else ""
                bar.reset(task, description=f"{event.job + 1}/{event.jobs} {event.decoder}{again}", left="")
            elif isinstance(event, session.Progress):
                left = "" if event.eta_seconds is None else f", about {event.eta_seconds:.0f} s left"
                bar.update(task, completed=len(event.tokens), total=event.budget, left=left)
                bar.refresh()
            else:
                yield event


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= PROMPT_SHOWN else line[: PROMPT_SHOWN - 1] + "…"
