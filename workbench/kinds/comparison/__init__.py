"""A comparison: one prompt, several decoders side by side, with full traces.

`workbench/web/strip.js` draws its panels, on the live page and in an exported report.
"""

import argparse
import html
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, cast

from rich.console import Group
from rich.text import Text

from decoders import catalog
from workbench.runs import timing
from workbench.runs.figures import rows
from workbench.runs.record import Result, Run
from workbench.show import comparison, laws, looks, panel, tables
from workbench.show.view import Body, Line, View, comparisons, figure_html
from workbench.studies.prompts import Prompt, Words, checked, plain, title
from workbench.studies.settings import OPENING, SHOWN, Served, Settings, known, method_of
from workbench.studies.study import BASELINE, Job, Start, Study
from workbench.terminal import flags, show


@dataclass(frozen=True)
class Comparison(Study):
    """A comparison.

    Attributes:
        prompt: the text to continue, or the chat to answer
        settings: the decoders and the settings that they share
        start: for a branch, the tokens that it continues; the prompt is their text

    Raises:
        InputError: for a prompt that is no text and no list of messages, or is empty or too long
    """

    kind: ClassVar[str] = "comparison"
    named: ClassVar[str] = "prompt"
    by_decoder: ClassVar[bool] = True
    asks_engines: ClassVar[bool] = True

    prompt: Words
    settings: Settings
    start: Start | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", checked(self.prompt))

    @property
    def title(self) -> str:
        return title(self.prompt)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (Prompt(self.prompt, "The prompt", self.start.ids if self.start else ()),)

    def jobs(self) -> list[Job]:
        """The jobs: all decoders with the first seed, then with the next.

        Greedy comes first, because the others are compared with it.
        """
        methods = sorted(self.settings.methods, key=lambda m: m.name != BASELINE)
        return [
            Job(m, i, self.settings.seed + i) for i in range(self.settings.repeats) for m in methods
        ]

    def to_json(self) -> dict[str, Any]:
        start = {"start": self.start.to_json()} if self.start else {}
        return {"prompt": plain(self.prompt), "settings": self.settings.to_json(), **start}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Comparison":
        start = Start.from_json(data["start"]) if data.get("start") is not None else None
        # Both are validated where they are used.
        prompt, settings = (cast(Any, data.get(key)) for key in ("prompt", "settings"))
        return cls(prompt, Settings.from_json(settings), start)


# The settings that page, terminal and endpoint begin with, besides those kept with the pair.
START = {
    "decoders": [method.name for method in SHOWN],
    **OPENING,
    "chat_template": "auto",
}


def strip(panels: Iterable[str | None], key: str) -> dict[str, Any]:
    """The value of the page's strip.

    Each panel travels as one text: Gradio walks nested data node by node, ten times a second.

    Args:
        panels: the panels; None for one that stays as it is
        key: the run
    """
    return {"run": key, "panels": list(panels)}


# The texts are drawn from what the picture has, so that a file holds it once.
PANELS = """const found = document.getElementById("picture");
if (found) {
  const { run, panels } = JSON.parse(found.dataset.shown);
  const value = { run, panels: panels.map((panel) => JSON.stringify(panel)) };
  Workbench.show(document.getElementById("panels"), value);
}"""


def body(run: Run) -> Body:
    says, lines = f"<p>{html.escape(tables.verdict(run))}</p>", rows(run.results)
    figures = [*comparison.charts(lines, run.settings), *comparison.details(lines)]
    texts = "".join(
        f"<h3>{html.escape(r.decoder)}</h3><pre>{html.escape(r.alone.text)}</pre>"
        for r in run.results
        if r.repeat == 0
    )
    return Body(
        f"""{panel.picture(run)}
{says}
<div id="panels">{texts}</div>
<h2>Figures</h2>
{tables.markup(tables.figures(run))}
{"".join(map(figure_html, figures))}""",
        PANELS,
        plotly=True,
    )


def columns(run: Run) -> Callable[[Result], Line]:
    served = any(r.server for r in run.results)
    return lambda r: {
        "identical_to_greedy": None if r.agreement is None else not r.agreement.differing,
        **(_of_engine(r) if served else {}),
        "finished": r.alone.finished,
        "error": r.error,
    }


def _of_engine(result: Result) -> Line:
    server = asdict(result.server) if result.server else {}
    return {
        **{f"engine_{name}": server.get(name) for name in ("kind", "version", "model")},
        "seconds_to_first_token": timing.first(result.laps),
        "verdict": (result.agreement.verdict if result.agreement else None) or None,
    }


VIEW = View("Decoders side by side", body, columns, comparisons)


DESCRIPTION = (
    "Decode one prompt with several decoders, one after another so that each is timed alone."
)
EXAMPLES = """examples:
  python -m workbench compare "Once upon a time"
  python -m workbench compare "Once upon a time" --decoders greedy mtad --temperature 0 \\
    --json out.json
  python -m workbench compare "Once upon a time" --decoders dsbd --set dsbd.draft_beams=6 \\
    --repeats 5 --csv out.csv
  python -m workbench compare "The capital of France is" --models "SmolLM2-1.7B + SmolLM2-135M"
  python -m workbench compare "Once upon a time" --engines http://127.0.0.1:8000
  python -m workbench compare - < prompt.txt
  python -m workbench compare '[{"role": "user", "content": "Who are you?"}]' --models MODEL
"""


def register(commands: Any) -> None:
    decoders = flags.listed("decoders", {name: method.summary for name, method in catalog.items()})
    command = flags.command(
        commands, "compare", "decode one prompt with several decoders", DESCRIPTION + decoders,
        EXAMPLES,
    )  # fmt: skip
    command.set_defaults(command=run)
    flags.add_prompt(command)
    flags.add_engines(command)
    flags.add(command, START, Comparison)


def run(args: argparse.Namespace) -> int:
    settings = flags.settings(args, START)
    servers = tuple(map(Served, flags.engines(args)))
    settings = replace(settings, methods=(*settings.methods, *servers))
    return show.run(Comparison(flags.prompt(args), settings), args)


def legend(results: Iterable[Result]) -> Text:
    occurring = {token.fate for result in results for token in result.alone.tokens}
    return Text("   ").join(
        Text(style.label, style.terminal)
        for fate, style in looks.FATES.items()
        if fate in occurring
    )


def text(result: Result) -> Group:
    summary = method_of(result.decoder).summary if known(result.decoder) else ""
    parts = [
        Text.assemble("\n", (show.printable(result.decoder), "bold"), (f"  {summary}", "dim")),
        show.coloured(result.alone.tokens),
    ]
    agreement = result.agreement
    notes = (
        (result.server and laws.served(result.server).chip, "dim"),
        (agreement and panel.badge(agreement)["text"], "dim"),
        (agreement and agreement.differing and agreement.says, "dim"),
        (result.error, "red"),
    )
    return Group(*parts, *(Text(show.printable(says), style) for says, style in notes if says))


def summary(run: Run) -> Group:
    # A row for each figure, a column for each decoder, which has the name that flags use.
    table, decoders = tables.figures(run), [row.decoder for row in rows(run.results)]
    columns = [[name, *cells[1:]] for name, cells in zip(decoders, table.rows, strict=True)]
    heads, *lines = map(list, zip(table.heads, *columns, strict=True))
    figures = show.grid(tables.Table(heads, lines))
    return Group("", "", legend(run.results), "", figures, *show.remarks(run))
