"""Draws: one prompt continued with many seeds, to see the distribution of each decoder."""

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from rich.console import Group
from rich.text import Text

from decoders import InputError, catalog
from decoders.errors import refuse
from decoders.settings import check, setting
from workbench.runs.draws import findings, grouped, seeds, texts_of
from workbench.runs.record import LARGEST_FILE, Result, Run
from workbench.runs.store import recorded
from workbench.show import draws, tables
from workbench.show.view import Body, Line, View, agreement
from workbench.studies.prompts import Prompt, Words, checked, plain, title
from workbench.studies.settings import Settings
from workbench.studies.study import MEGABYTE, Job, Study
from workbench.terminal import flags, show

# Requests in one pass, so that a pass, and with it Stop, takes a fraction of a second.
MOST_AT_ONCE = 64


@dataclass(frozen=True)
class Draw(Study):
    """A study of draws.

    Attributes:
        prompt: the text to continue, or the chat to answer
        settings: the decoders and the settings that they share
        draws: texts that each decoder draws, with `settings.seed` and the seeds after it
        cache_mb: memory budget in MB, or None

    Raises:
        InputError: for a study that cannot be drawn
    """

    kind: ClassVar[str] = "draw"
    named: ClassVar[str] = "prompt"
    usual: ClassVar[Mapping[str, Any]] = {"timings": 1, "max_new_tokens": 16}
    verb: ClassVar[str] = "Draw"
    counts: ClassVar[str] = "draws"
    has_law: ClassVar[bool] = True

    prompt: Words
    settings: Settings
    draws: int = setting(
        100, "texts that each decoder draws, each with the next seed", low=10, high=1000
    )
    cache_mb: float | None = setting(
        512.0,
        "memory budget: MB of cache for all requests together; a draw waits until its worst case "
        "fits",
        low=0.01,
        high=1_000_000.0,
        choices=(None,),
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", checked(self.prompt))
        for field in self.own():
            check("draw", field, getattr(self, field.name))
        if self.settings.repeats > 1:
            raise InputError(
                "Each draw already has its own seed: leave repeats at 1, and ask for more draws."
            )

    @property
    def title(self) -> str:
        return title(self.prompt)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (Prompt(self.prompt, "The prompt"),) * self.draws

    def jobs(self) -> list[Job]:
        at_once = math.ceil(self.draws / math.ceil(self.draws / MOST_AT_ONCE))
        budget = None if self.cache_mb is None else round(self.cache_mb * MEGABYTE)
        return [
            Job(method, 0, self.settings.seed, at_once, "dynamic", "text", max_cache_bytes=budget)
            for method in self.settings.methods
        ]

    def to_json(self) -> dict[str, Any]:
        return {"prompt": plain(self.prompt), "settings": self.flat_settings}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Draw":
        settings, own = cls.split(data)
        return cls(cast(Any, data.get("prompt")), settings, **own)


# The settings that the form and the command begin with.
START = {
    **Draw.usual,
    "decoders": ["multinomial", "speculative", "mtad", "dsbd"],
    "chat_template": "auto",
}


def body(run: Run) -> Body:
    content = (
        draws.first_words(run),
        draws.headline(run),
        tables.markup(draws.table(run)),
        draws.trees(run),
    )
    return Body("\n".join(content))


def columns(run: Run) -> Callable[[Result], Line]:
    of_decoders, each_has = {each.decoder: each for each in findings(run)}, agreement(run)

    def more(r: Result) -> Line:
        each = of_decoders.get(r.decoder)
        texts = [tuple(piece.id for piece in sample.pieces) for sample in texts_of([r])]
        return each_has(r) | {
            "drawn": len(texts),
            "different": len(set(texts)),
            "compared_with": each and each.compared,
            "compared_draws": each and each.draws,
            "p_holm": each and each.p,
            "total_variation": each and each.distance,
            "total_variation_of_exact": each and each.usual,
            "unlike": each and each.unlike,
            "needed_draws": each and each.needed,
            "never_written": each and each.never,
        }

    return more


VIEW = View("Many draws", body, columns)


def again(
    run: Run, draws: int | None = None, most: int | None = None, largest: int = LARGEST_FILE
) -> Draw:
    """The study that draws with the seeds after those of a run, and is otherwise the same.

    Args:
        draws: texts that each decoder draws; by default as many as it has, which doubles their
            number
        most: the most draws that this place allows at once
        largest: bytes of the run with all of them

    Raises:
        InputError: if nothing can be added
    """
    refuse(
        (
            run.kind != Draw.kind or not run.results,
            "Only a run of draws can be drawn again with other seeds; this one has none.",
        ),
        (
            recorded(run.id) is not None,
            "A run that was recorded beforehand stays as it is: press Draw for one of your own, "
            "and add draws to that.",
        ),
    )
    study = Draw.from_json(run.study)
    if study.settings.temperature == 0:
        raise InputError(
            "At temperature 0 every seed writes the same text; raise the temperature in a new run."
        )
    count = max(sum(len(result.samples) for result in results) for results in grouped(run).values())
    if draws is None:
        range_ = next(field.metadata for field in Draw.own() if field.name == "draws")
        draws = min(max(count, range_["low"]), range_["high"], most or range_["high"])
    study = replace(
        study,
        draws=draws,
        settings=replace(study.settings, seed=max(each.stop for each in seeds(run.results))),
    )
    if len(run.dumps()) * (1 + study.draws / count) > largest:
        raise InputError(
            f"With {draws:,} more draws this run would exceed {largest // 2**20} MB; "
            "draw fewer, or begin a new run."
        )
    return study


DESCRIPTION = (
    "Continue one prompt with many seeds, and test whether the first tokens of the texts follow "
    "the large model's own distribution."
)
EXAMPLES = """examples:
  python -m workbench draw "Once upon a time" --html texts.html
  python -m workbench draw "Once upon a time" --draws 1000 --decoders multinomial typical \\
    --temperature 0.7 --json out.json
"""


def register(commands: Any) -> None:
    decoders = flags.listed("decoders", {name: method.summary for name, method in catalog.items()})
    command = flags.command(
        commands,
        "draw",
        "continue one prompt with many seeds, and compare the draws with the exact law",
        DESCRIPTION + decoders,
        EXAMPLES,
    )
    command.set_defaults(command=run)
    flags.add_prompt(command)
    flags.add(command, START, Draw)


def run(args: argparse.Namespace) -> int:
    settings = flags.settings(args, START)
    return show.run(Draw(flags.prompt(args), settings, **flags.own(args, Draw)), args)


def summary(run: Run) -> Group:
    errors = [error for result in run.results for error in result.errors]
    return Group(
        *(Text(show.printable(error), "red") for error in errors),
        "",
        show.grid(draws.table(run)),
        *show.remarks(run),
        "",
        Text(show.printable(draws.verdict(run))),
        Text(draws.reach(run)),
    )
