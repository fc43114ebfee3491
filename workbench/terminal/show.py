"""How runs look in a terminal: coloured text, figures, a progress bar."""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table as Grid
from rich.text import Text
from rich.tree import Tree

from decoders import Fate, catalog
from workbench.runs import events
from workbench.runs.cells import DEPTH
from workbench.runs.draws import Node, drawn, grown
from workbench.runs.estimates import rows
from workbench.runs.record import Result, Run
from workbench.runs.store import RunSummary
from workbench.runs.trace import TokenRecord
from workbench.show import draws
from workbench.show.fates import FATES
from workbench.show.strip import badge
from workbench.show.tables import Table, by_decoder, figures, findings, notes
from workbench.studies.batch import Batch
from workbench.studies.comparison import Comparison
from workbench.studies.draw import Draw
from workbench.studies.schemes import scheme_label
from workbench.studies.text import counted

TITLE_SHOWN = 40
BRANCHES = 6  # of each token of a tree
# The figures of a batch that 80 columns hold; the files have all.
BATCH_SHOWN = ("decoder", "batch", "scheme", "tokens/s", "× greedy", "padding", "at once", "same", "J/token")


def plain(text: str) -> str:
    """The text without control characters, which a terminal would obey: they become symbols, such as ␛ for ESC."""
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


def legend(results: Iterable[Result]) -> Text:
    """The fates that occur, each in its own style."""
    occurring = {token.fate for result in results for token in result.alone.tokens}
    entries = [Text(style.label, style.terminal) for fate, style in FATES.items() if fate in occurring]
    return Text("   ").join(entries)


def text(result: Result) -> Group:
    """What one decoder of a comparison wrote under its name, with its badge or error."""
    summary = catalog[result.decoder].summary if result.decoder in catalog else ""
    name = Text.assemble("\n", (plain(result.decoder), "bold"), (f"  {summary}", "dim"))
    parts = [name, coloured(result.alone.tokens)]
    if result.agreement is not None:
        parts.append(Text(badge(result.agreement)["text"], "dim"))
    if result.error is not None:
        parts.append(Text(plain(result.error), "red"))
    return Group(*parts)


def summary(run: Run) -> Group:
    """What is shown once a run is over: its figures, and what they say."""
    if run.kind == Comparison.kind:
        return Group("", "", legend(run.results), "", comparison_figures(run), *remarks(run))
    if run.kind == Batch.kind:
        found = figures(run)
        shown = [i for i, head in enumerate(found.heads) if head in BATCH_SHOWN]
        # Decoders under the names that flags know.
        lines = [
            [row.decoder, *(cells[i] for i in shown[1:])]
            for row, cells in zip(rows(run.results), found.rows, strict=True)
        ]
        found = Table([found.heads[i] for i in shown], lines)
        return Group(grid(found), *remarks(run), "", "", *(Text(plain(words)) for words in findings(run)))
    if run.kind == Draw.kind:
        words = (Text(plain(sentence)) for sentence in draws.verdicts(run))
        return Group(
            *(tree(result, run) for result in run.results), "", grid(draws.table(run)), *remarks(run), "", *words
        )
    return Group(grid(figures(run)), *remarks(run))


def tree(result: Result, run: Run) -> Tree:
    """The first tokens of a decoder's draws with their counts, and in brackets those expected of the target."""
    root, law = grown(sample.pieces for sample in drawn(result)), {tuple(each.tokens): each.p for each in run.exact}
    shown = Tree(Text.assemble("\n", (plain(result.decoder), "bold"), (f"  {counted(root.count, 'draw')}", "dim")))
    if result.error is not None:
        shown.add(Text(plain(result.error), "red"))
    _grow(shown, root, (), root.count, law)
    return shown


def _grow(shown: Tree, node: Node, path: tuple[int, ...], total: int, law: Mapping[tuple[int, ...], float]) -> None:
    for child in node.following[:BRANCHES]:
        below = (*path, child.id)
        expected = f" ({total * law[below]:.1f})" if below in law else ""
        branch = shown.add(Text.assemble(f"{child.count}", (expected, "dim"), f"  {draws.visible(child.text) or '▫'}"))
        if len(below) < DEPTH:
            _grow(branch, child, below, total, law)
    if rest := node.following[BRANCHES:]:
        shown.add(Text(f"{sum(child.count for child in rest)}  in {len(rest)} others", "dim"))


def comparison_figures(run: Run) -> Grid:
    """The figures of a comparison, a row each and a column for each decoder under the name that flags know."""
    found = rows(run.results)
    table = by_decoder(found)
    turned = zip(
        table.heads, *([row.decoder, *cells[1:]] for row, cells in zip(found, table.rows, strict=True)), strict=True
    )
    heads, *lines = map(list, turned)
    return grid(Table(heads, lines))


def remarks(run: Run) -> list[Text]:
    """What a reader of the figures must know: how they were timed, and why energy is not among them."""
    sources = dict.fromkeys(result.energy.source for result in run.results if result.energy.joules is None)
    return [Text(plain(words), "dim") for words in (*notes(run), *(f"energy {source}" for source in sources))]


def run(run: Run) -> Group:
    """A whole run: what it was, the texts of its first repeat if it kept them, and its summary."""
    head = Text.assemble((run.id, "bold"), f"  {run.created}  {plain(run.models)}\n", (plain(run.title), "dim"))
    texts = [text(result) for result in run.results if result.repeat == 0] if run.kind == Comparison.kind else [""]
    return Group(head, *texts, summary(run))


def grid(table: Table) -> Grid:
    """Any table of texts; nothing in it is read as markup."""
    found = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in table.heads:
        found.add_column(Text(head), overflow="fold")
    for row in table.rows:
        found.add_row(*(Text(plain(cell)) for cell in row))
    return found


def summaries(runs: Iterable[RunSummary]) -> Grid:
    lines = [
        [r.id, r.created[:16].replace("T", " "), r.kind, _short(r.title), ", ".join(r.decoders), r.models] for r in runs
    ]
    return grid(Table(["run", "created (UTC)", "kind", "title", "decoders", "models"], lines))


def follow(happening: Iterator[events.Event], console: Console, progress: Console) -> Run:
    """Draw the events as a bar on `progress`, and on `console` each text of a comparison's first repeat as it is finished; returns
    the run."""
    first = next(happening)  # a study that is refused is refused before there is a bar
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} tokens{task.fields[left]}"),
    )
    with Progress(*columns, console=progress, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", left="")
        for event in chain([first], happening):
            if isinstance(event, events.Started):
                bar.reset(task, description=_job(event.at), left="")
            elif isinstance(event, events.Progress):
                left = "" if event.eta_seconds is None else f", about {event.eta_seconds:.0f} s left"
                bar.update(task, completed=event.done, total=event.budget, left=left)
                bar.refresh()
            elif isinstance(event, events.Finished) and _has_new_text(event):
                console.print(text(event.result))
    assert isinstance(event, events.Ended)  # it comes last
    return event.run


def _has_new_text(event: events.Finished) -> bool:
    return event.run.kind == Comparison.kind and event.at.repeat == event.at.lap == 0


def _job(at: events.At) -> str:
    batch = (
        f", batch {at.batch_size}, {scheme_label(at.decoder, at.batch_size, at.scheme)}" if at.batch_size > 1 else ""
    )
    again = f" (repeat {at.repeat + 1})" if at.repeat else ""
    timing = f", timing {at.lap + 1} of {at.laps}" if at.laps > 1 else ""
    return f"{at.step + 1}/{at.steps} {at.decoder}{batch}{again}{timing}"


def duration(seconds: float) -> str:
    """ "40 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_SHOWN else line[: TITLE_SHOWN - 1] + "…"
