"""The pages that are generated when the documentation is built: each decoder's and their index."""

import dataclasses
import inspect
import itertools
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

from mkdocs.structure.files import File, Files  # noqa: E402
from picture import FATE_WORDS, picture  # noqa: E402

import decoders  # noqa: E402
from decoders.methods.baselines import BeamSearch, Search  # noqa: E402
from decoders.methods.block import Block, Traversal  # noqa: E402
from decoders.methods.catalog import catalog  # noqa: E402
from decoders.methods.copies import BestFirst, Recycled, Recycler, Runs, Suffix, Suffixes  # noqa: E402
from decoders.methods.lossy import Cascade, Ensemble  # noqa: E402
from decoders.methods.named import Combination  # noqa: E402
from decoders.methods.rules import Tokenwise, speculate  # noqa: E402
from decoders.methods.sources import best_first  # noqa: E402
from decoders.settings import Law, Method  # noqa: E402

PROVEN = {
    Law.TARGET: (
        "sampling from the target one token at a time, with the same warping (temperature, top-k "
        "and so on)"
    ),
    Law.BEAM_SAMPLING: "beam sampling: the sequence that it would answer",
    Law.PER_LAYER: (
        "beam sampling, layer by layer: given the layers above and their widths, the beams of a "
        "layer are i.i.d. draws"
    ),
    Law.BEAM_SEARCH: (
        "beam search with the same settings: the beams of every layer, the answer and its end, "
        "whatever the draft"
    ),
    Law.CASCADE: "sampling from the cascade's mixture of both models, one token at a time",
    Law.ENSEMBLE: "sampling from the weighted mean of both models, one token at a time",
}
# The code that a rule hands its work to.
JUDGING = {
    Traversal: (Block,), Cascade: (Tokenwise,), Ensemble: (Tokenwise,),
}  # fmt: skip
# The code that chooses the tokens of a source.
CHOOSING = {
    BestFirst: (BestFirst, best_first), Suffix: (Runs, Suffixes, best_first),
    Recycled: (Recycler, best_first),
}  # fmt: skip
PROMPT = "Once upon a time, there was a little girl who"


def on_files(files: Files, config: Any) -> Files:
    pair, words = (
        decoders.load_pair(),
        tomllib.loads((ROOT / "docs" / "decoders.toml").read_text("utf-8")),
    )
    pages = {
        f"decoders/{name}.md": page(
            method, pair, words["pseudo"][name], words["tested"].get(name), words["pays"].get(name)
        )
        for name, method in catalog.items()
    }
    pages["decoders/index.md"] = index()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    image = (ROOT / "assets" / "workbench.png").read_bytes()
    files.append(File.generated(config, "workbench.png", content=image))
    return files


def index() -> str:
    rows = [
        f"| [`{name}`]({name}.md) | {m.summary} | {claim(m)} | {m.paper} |"
        for name, m in catalog.items()
    ]
    return "\n".join(
        [
            "# Decoders",
            "",
            "An *exact* decoder has, provably and by a test that enumerates every outcome, the law "
            "named here.",
            "",
            "| name | what it does | output | from |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def claim(method: type[Method]) -> str:
    return f"exact: {method.law}" if method.law else "its own"


def page(
    method: type[Method],
    pair: decoders.ModelPair,
    pseudo: str,
    tested: str | None,
    pays: str | None,
) -> str:
    wide = "---\nhide: [toc]\n---"  # the code stands beside the paper's lines
    parts = [
        wide,
        f"# {method.title}",
        method.summary,
        f"`{method.name}`, from {method.paper}, {method.section}.",
    ]
    parts += ["## What it claims", proof(method, tested)]
    columns = [
        f'```text title="The paper"\n{pseudo.strip()}\n```',
        f'```python title="The code"\n{source(method)}\n```',
    ]
    parts += ["## How it works", '<div class="grid" markdown>', *columns, "</div>"]
    parts += ["## A real round", real_round(method, pair)]
    parts += ["## Settings", settings(method)]
    measured = [each.strip() for each in (pays, figures(method)) if each]
    parts += ["## Measured", *(measured or ["Not measured yet on the embedded pair."])]
    return "\n\n".join(parts) + "\n"


def proof(method: type[Method], tested: str | None) -> str:
    if method.law is None:
        return f"It does not promise the large model's distribution. {tested.strip()}"
    return (
        f"Its output has the law of {PROVEN[method.law]}. The tests put made-up tables in the "
        "place of the models and a source that takes every way in turn in the place of the random "
        "generator, add up the probability of every output, and compare it with that law: the "
        "total variation is below 1e-9 in float64, with and without top-k, top-p, min-p, top-nσ, "
        "an end of text and temperature 0. You can [run the proof yourself](../own.md#prove-it)."
    )


def source(method: type[Method]) -> str:
    """The decoder's `decode` and the code that it calls.

    The latter are functions of its module; of a combination, the loop, the rule and, if it chooses
    tokens, the drafts."""
    if issubclass(method, Combination):
        drafts, rule = (type(part) for part in method().parts)
        own, code = vars(method).get("parts"), (speculate, *CHOOSING.get(drafts, ()), rule)
        named = f"usual = {drafts.__name__}, {rule.__name__}"
        return "\n\n\n".join(
            inspect.cleandoc("\n" + text)
            for text in (
                inspect.getsource(own.fget) if own else named,
                *map(inspect.getsource, (*code, *JUDGING.get(rule, ()))),
            )
        )
    own = sys.modules[method.__module__]
    text = inspect.cleandoc("\n" + inspect.getsource(method.decode))
    parts = [text, *([inspect.getsource(Search)] if issubclass(method, BeamSearch) else [])]
    for name, thing in vars(own).items():
        if (
            inspect.isfunction(thing) and thing.__module__ == own.__name__ and f"{name}(" in text
        ) or (inspect.isclass(thing) and hasattr(thing, "pick") and name in text):
            parts.append(inspect.getsource(thing))
    return "\n\n\n".join(part.strip() for part in parts)


def real_round(method: type[Method], pair: decoders.ModelPair) -> str:
    """The first round after the first that drafted or kept something, on the embedded pair."""
    result = decoders.generate(
        pair, PROMPT, method(), max_new_tokens=12, seed=3, temperature=1.0, top_k=20, top_p=0.9
    )
    entry = max(result.rounds[1:4] or result.rounds, key=lambda r: len({t.node for t in r.trials}))
    words = (
        f"Round {entry.index + 1} of the embedded pair after *{PROMPT}* (T=1, top-k 20, top-p "
        f"0.9, seed 3). {FATE_WORDS}"
    )
    return f"{words}\n\n{picture(entry, pair.tokenizer)}"


def settings(method: type[Method]) -> str:
    fields = dataclasses.fields(method)
    if not fields:
        return "It has none of its own."
    rows = [
        f"| `{f.name}` | `{f.default!r}` | {f.metadata['help'].replace('|', '/')} |" for f in fields
    ]
    return "\n".join(["| name | default | what it is |", "|---|---|---|", *rows])


def figures(method: type[Method]) -> str:
    """The row of this decoder in the report of the plan `stories`, with its date and machine.

    "" if the report lacks it."""
    report = (ROOT / "docs" / "stories.md").read_text("utf-8")
    facts = dict(re.findall(r"^- (begun \(UTC\)|pair): (.*)$", report, re.M))
    section = report.partition("\n## Decoders\n")[2].splitlines()
    head, _, *rows = itertools.takewhile(
        lambda line: line.startswith("|"),
        itertools.dropwhile(lambda line: not line.startswith("|"), section),
    )
    row = next((row for row in rows if row.startswith(f"| {method.name} |")), None)
    if row is None:
        return ""
    lines = [
        f"| {name} | {value} |"
        for name, value in list(zip(split(head), split(row), strict=True))[1:]
    ]
    where = f"On {facts['begun (UTC)'][:10]}, {facts['pair']}."
    how = (
        "Brackets: 95% intervals. [The whole experiment](../stories.md) says how it was measured, "
        "and with which settings."
    )
    return "\n".join([f"{where} {how}", "", "| | |", "|---|---|", *lines])


def split(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]
