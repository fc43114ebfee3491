"""A batch study: prompts at several batch sizes and in several schemes, each next to greedy.

Its findings are the agreement of its tokens, acceptance lengths, and the tables of EMS-SD
(arXiv 2405.07542).
"""

import argparse
import html
import itertools
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.console import Group
from rich.text import Text

from decoders import InputError, catalog
from decoders.errors import flag, quoted, refuse, whole
from decoders.settings import check, nearest, setting
from workbench.runs.figures import BatchFigures, Row, label, rows, speed
from workbench.runs.record import Result, Run
from workbench.show import batch, tables
from workbench.show.quantities import BATCH_QUANTITIES, MISSING, figure, padding_ratio, percent
from workbench.show.view import Body, Line, View, agreement, figure_html
from workbench.studies import prompts
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.settings import Settings, counted
from workbench.studies.study import (
    ALONE,
    BASELINE,
    BASELINES,
    LARGEST_BATCH,
    MEGABYTE,
    SCHEMES,
    Job,
    Keep,
    Study,
    baseline_scheme,
    schemes_at,
)
from workbench.terminal import flags, show

SIZES = (1, 2, 4, 8, 16, 24)  # of EMS-SD (arXiv 2405.07542), table 2


@dataclass(frozen=True)
class Batch(Study):
    """A batch study.

    Attributes:
        prompt_set: the prompts and their name
        settings: the decoders and the settings that they share; greedy always runs, as the baseline
        sizes: batch sizes
        schemes: names of `SCHEMES`
        ignore_eos: whether to continue after the end of a text, so that every output has the same
            length
        cache_mb: memory budget of a batch in MB, or None
        prefill_chunk: the most prompt tokens in one pass, or None

    Raises:
        InputError: for a study that cannot be measured
    """

    kind: ClassVar[str] = "batch"
    usual: ClassVar[Mapping[str, Any]] = {"timings": 1}
    verb: ClassVar[str] = "Measure"
    named: ClassVar[str] = "prompts"
    linked: ClassVar[tuple[str, ...]] = ("prompts", "count", "sizes", "schemes", "ignore_eos")
    batches: ClassVar[bool] = True

    prompt_set: PromptSet
    settings: Settings
    sizes: tuple[int, ...] = SIZES
    schemes: tuple[str, ...] = tuple(SCHEMES)
    ignore_eos: bool = True
    cache_mb: float | None = setting(
        None,
        "memory budget: MB of cache for all requests together; a request waits until its worst "
        "case fits; unpadded schemes only",
        low=0.01,
        high=1_000_000.0,
        choices=(None,),
    )
    prefill_chunk: int | None = setting(
        None,
        "most prompt tokens in one pass; the rest follow while other requests decode",
        low=1,
        high=1_000_000,
        choices=(None,),
    )

    def __post_init__(self) -> None:
        for field in self.own():
            check("batch", field, getattr(self, field.name))
        for size in self.sizes:
            whole("A batch size", size, LARGEST_BATCH)
        for scheme in self.schemes:
            known(scheme, SCHEMES, "There is no scheme")
        flag("ignore_eos", self.ignore_eos)
        padded = [SCHEMES[s].label for s in self.schemes if SCHEMES[s].padding != "none"]
        refuse(
            (
                not self.sizes or not self.schemes,
                "No batch size or no scheme is chosen; choose at least one of each.",
            ),
            (
                self.cache_mb is not None and max(self.sizes, default=1) > 1 and padded,
                "A memory budget works only with schemes that pad nothing: leave out "
                f"{', '.join(padded)}, or leave the budget empty.",
            ),
        )

    @property
    def title(self) -> str:
        return f"{len(self.prompts)} {self.prompt_set.name}"

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return self.prompt_set.prompts

    @property
    def max_cache_bytes(self) -> int | None:
        return None if self.cache_mb is None else round(self.cache_mb * MEGABYTE)

    def jobs(self) -> list[Job]:
        """The jobs, size by size, greedy before the others.

        The tokens that a round gains do not depend on the batch, so they are kept once per decoder.
        """
        names: set[str] = set()
        methods = [m for m in self.settings.methods if m.name != BASELINE]
        jobs = []
        grid = itertools.product(range(self.settings.repeats), sorted(set(self.sizes)))
        for repeat, size in grid:
            schemes = schemes_at(size, self.schemes)
            usual = dict.fromkeys(map(baseline_scheme, schemes))
            cells = [(catalog[BASELINE](), scheme) for scheme in usual]
            for method, scheme in [*cells, *itertools.product(methods, schemes)]:
                keep: Keep = "figures" if method.name in names else "lengths"
                names.add(method.name)
                jobs.append(
                    Job(
                        method, repeat, self.settings.seed + repeat, size, scheme, keep,
                        self.ignore_eos, self.max_cache_bytes, self.prefill_chunk,
                    )
                )  # fmt: skip
        return jobs

    def to_json(self) -> dict[str, Any]:
        return {
            "prompts": self.prompt_set.to_json(),
            "settings": {
                **self.flat_settings,
                "sizes": list(self.sizes),
                "schemes": list(self.schemes),
                "ignore_eos": self.ignore_eos,
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Batch":
        settings, own = cls.split(data)
        for name in {"sizes", "schemes"} & own.keys():
            if not isinstance(own[name], (list, tuple)):
                raise InputError(f"`{name}` must be a list, not {quoted(own[name])}.")
            own[name] = tuple(own[name])
        return cls(PromptSet.from_json(data.get("prompts")), settings, **own)

    @classmethod
    def of_file(cls, data: Mapping[str, Any]) -> "Batch":
        """The study of a run in a file.

        Version 1 did not keep the texts of a file of prompts; its runs can be shown without them.
        """
        of = data.get("prompts")
        if isinstance(of, Mapping) and of.get("texts") is None:
            data = {**data, "prompts": {"name": of.get("name"), "texts": ["-"]}}
        return cls.from_json(data)

    @classmethod
    def to_link(cls, data: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
        """What a form shows that no link fills is left out."""
        usual = _parameters(start)
        return {n: value for n, value in _parameters(data).items() if value != usual.get(n)}

    @classmethod
    def from_link(
        cls, name: str, text: str, data: dict[str, Any], settings: dict[str, Any]
    ) -> None:
        words = [word for word in text.split(",") if word]
        if name == "ignore_eos":
            settings[name] = text != "False"
        elif name == "sizes":
            settings[name] = [prompts.whole(word) for word in words]
        elif name == "schemes":
            settings[name] = [known(word, SCHEMES, "there is no scheme") for word in words]
        elif name == "count":
            data.setdefault("prompts", {})[name] = prompts.whole(text)
        else:
            set_name = known(text, prompts.BUILT_IN, "there are no built-in prompts")
            data.setdefault("prompts", {})["name"] = set_name


def known(name: Any, names: Collection[str], missing: str) -> str:
    """The name; raises InputError with the nearest of the names if it is not among them."""
    if not isinstance(name, str) or name not in names:
        raise InputError(f"{missing} {quoted(name)}: {nearest(str(name), names)}")
    return name


def _parameters(data: Mapping[str, Any]) -> dict[str, Any]:
    """A study's parameters of a link; the texts of a file do not fit into one."""
    chosen, settings = data.get("prompts") or {}, data.get("settings", {})
    built_in = chosen.get("name") in prompts.BUILT_IN
    named = {"prompts": chosen["name"], "count": chosen.get("count")} if built_in else {}
    lists = [name for name in ("sizes", "schemes") if name in settings]
    return {
        **{name: value for name, value in named.items() if value is not None},
        **{name: ",".join(map(str, settings[name])) for name in lists},
        "ignore_eos": settings.get("ignore_eos", True),
    }


# The settings that the form and the command begin with.
START = {
    **Batch.usual,
    "decoders": ["lookup", "speculative"],
    "temperature": 0.0,
    "chat_template": "auto",
}


# On paper a chart has the width of its column, not of the window.
REDRAW = """for (const event of ["resize", "beforeprint", "afterprint"])
  addEventListener(event, () =>
  document.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.Plots.resize(plot)));"""
READINGS = ((False, "with the reading of prompts"), (True, "without the reading of prompts"))


def findings(run: Run) -> list[str]:
    compared = [r.agreement for r in run.results if r.agreement is not None]
    words = "Identical tokens in every scheme and at every batch size."
    if not compared:
        words = "Too little to compare."
    if differing := sum(a.differing for a in compared):
        words = (
            f"{counted(differing, 'output differs', 'outputs differ')} from the decoder's first: "
            "near-ties, rounded differently by passes of another shape."
        )
    for what, errors in (
        ("measurement", [r.error for r in run.results if r.error]),
        ("request", [error for r in run.results if not r.error for error in r.errors]),
    ):
        if errors:
            words += f" {counted(len(errors), what)} failed: {errors[0]}"
    sentences, figures = [words], BatchFigures(run)
    for decoder in figures.decoders:
        if means := figures.mean_acceptances(decoder):
            deviation = f", deviation {statistics.stdev(means):.2f}" if len(means) > 1 else ""
            sentences.append(
                f"{label(decoder)}: {statistics.fmean(means):.2f} tokens per round, mean of "
                f"{counted(len(means), 'sample')} that range from {min(means):.2f} to "
                f"{max(means):.2f}{deviation}."
            )
    return sentences


def paper_table(figures: BatchFigures, decoder: str, decoding: bool) -> tables.Table:
    """Tokens/s of one decoder, with the speed-up over greedy in brackets.

    Dynamic batches are compared with greedy in dynamic batches.

    Args:
        figures: the figures of a run
        decoder: the name of the decoder
        decoding: whether to leave out the reading of prompts, as the paper does; dynamic batches
            have no such figure

    Source:
        EMS-SD (arXiv 2405.07542), tables 2 to 4.
    """
    schemes = figures.schemes(decoder, decoding)
    bases = dict.fromkeys(map(baseline_scheme, schemes)) or [ALONE]
    table = tables.Table(
        [
            "batch",
            *(BASELINES[base] for base in bases),
            *(SCHEMES[s].label for s in schemes),
            "padding ratio",
            "slowest prompt",
        ],
        [],
    )
    for size in figures.sizes:
        speeds = [_timed(figures.row(decoder, size, scheme), decoding) for scheme in schemes]
        ratio = padding_ratio(figures, decoder, size)
        least = figures.least_acceptance(decoder, size)
        table.rows.append(
            [
                str(size),
                *(_timed(figures.row(BASELINE, size, base), decoding)[0] for base in bases),
                *("" if speed == MISSING else f"{speed} ({times})" for speed, times in speeds),
                MISSING if ratio is None else percent(ratio),
                MISSING if least is None else f"{least:.2f}",
            ]
        )
    return table


def _timed(row: Row | None, decoding: bool) -> list[str]:
    if row is None:
        return [MISSING, MISSING]
    names = ("decoding", "decoding_x_greedy") if decoding else ("speed", "x_greedy")
    return [figure(each, row) for each in BATCH_QUANTITIES if each.name in names]


def body(run: Run) -> Body:
    figures = BatchFigures(run)
    parts = ["".join(f"<p>{html.escape(words)}</p>" for words in findings(run))]
    for decoder in figures.decoders:
        parts.append(f"<h2>{html.escape(label(decoder))}</h2>")
        for decoding, words in READINGS:
            parts.append(f"<p>tokens/s (times greedy at the same batch size), {words}</p>")
            parts.append(tables.markup(paper_table(figures, decoder, decoding)))
        parts.append(_cards(batch.OF_ONE, figures, decoder))
    if figures.decoders:
        parts += ["<h2>All decoders</h2>", _cards(batch.OF_ALL, figures, "")]
    parts += ["<h2>Figures</h2>", tables.markup(tables.figures(run))]
    return Body("\n".join(parts), REDRAW, plotly=True)


def _cards(cards: Iterable[batch.Card], figures: BatchFigures, decoder: str) -> str:
    each = (
        f"<section><h3>{html.escape(card.title)}</h3><p>{html.escape(card.says)}</p>"
        f"{figure_html(card.draw(figures, decoder, False))}</section>"
        for card in cards
    )
    return f'<div class="wb-charts">{"".join(each)}</div>'


def columns(run: Run) -> Callable[[Result], Line]:
    figures, each_has = BatchFigures(run), agreement(run)

    def more(r: Result) -> Line:
        of = r.decoder, r.batch_size, r.scheme
        return each_has(r) | {
            "x_greedy": figures.times_greedy(*of),
            "decode_tokens_per_second": speed(r, decoding=True),
            "decode_x_greedy": figures.times_greedy(*of, decoding=True),
            "least_acceptance": figures.least_acceptance(r.decoder, r.batch_size),
        }

    return more


VIEW = View("Batches", body, columns)


DESCRIPTION = (
    "Decode a set of prompts in batches, and compare each padding scheme with greedy decoding at "
    "the same batch size."
)
EXAMPLES = """examples:
  python -m workbench batch --prompts refrains --decoders lookup --sizes 1 4 8
  python -m workbench batch --prompts my.jsonl --count 100 --decoders speculative mtad \\
    --schemes unpadded dynamic --json out.json
  python -m workbench batch --sizes 8 --schemes dynamic --cache-mb 2 --prefill-chunk 32
"""


# The figures that fit into 80 columns; the files have all.
SHOWN = (
    "decoder", "batch", "scheme", "tokens/s", "× greedy", "padding", "at once", "same", "J/token",
)  # fmt: skip


def register(commands: Any) -> None:
    schemes = flags.listed("schemes", {name: scheme.help for name, scheme in SCHEMES.items()})
    command = flags.command(
        commands, "batch", "decode a set of prompts in batches", DESCRIPTION + schemes, EXAMPLES
    )
    command.set_defaults(command=run)
    command.add_argument(
        "--prompts", default="refrains", metavar="SET",
        help=f"{' or '.join(prompts.BUILT_IN)}; or a file with one prompt per line, or a .jsonl "
        "file (default: refrains)",
    )  # fmt: skip
    command.add_argument(
        "--count", type=int, metavar="N", help="the first N prompts of the set (default: all)"
    )
    command.add_argument(
        "--sizes", type=int, nargs="+", metavar="N", default=SIZES,
        help=f"batch sizes (default: {' '.join(map(str, SIZES))})",
    )  # fmt: skip
    command.add_argument(
        "--schemes", "--ways", nargs="+", metavar="SCHEME", default=list(SCHEMES),
        help="default: all",
    )  # fmt: skip
    command.add_argument(
        "--end", action="store_true",
        help="stop each text at its end; by default all have the same length",
    )  # fmt: skip
    flags.add(command, START, Batch)


def run(args: argparse.Namespace) -> int:
    own = flags.own(args, Batch)
    settings, chosen = flags.settings(args, START), prompts.find(args.prompts)
    if args.count is not None:
        chosen = chosen.first(args.count)
    return show.run(
        Batch(chosen, settings, tuple(args.sizes), tuple(args.schemes), not args.end, **own), args
    )


def summary(run: Run) -> Group:
    table = tables.figures(run)
    shown = [i for i, head in enumerate(table.heads) if head in SHOWN]
    # Decoders have the names that flags use.
    lines = [
        [row.decoder, *(cells[i] for i in shown[1:])]
        for row, cells in zip(rows(run.results), table.rows, strict=True)
    ]
    return Group(
        show.grid(tables.Table([table.heads[i] for i in shown], lines)),
        *show.remarks(run),
        "",
        "",
        *(Text(show.printable(words)) for words in findings(run)),
    )
