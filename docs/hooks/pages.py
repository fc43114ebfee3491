"""Pages that are generated when the documentation is built: one for each decoder, their index, the models that run."""

import dataclasses
import inspect
import json
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
from decoders.catalog import catalog  # noqa: E402
from decoders.settings import Method  # noqa: E402
from workbench.runs.record import Run  # noqa: E402
from workbench.show import tables  # noqa: E402

PROVEN = {
    "target": "sampling from the target one token at a time, with the same temperature, top-k and top-p",
    "beam sampling": "beam sampling: the sequence that it would answer",
    "beam sampling per layer": "beam sampling, layer by layer: given the layers above and their widths, the beams of a layer are i.i.d. draws",
}
PROMPT = "Once upon a time, there was a little girl who"


def on_files(files: Files, config: Any) -> Files:
    pair, pseudo = decoders.load_pair(), tomllib.loads((ROOT / "docs" / "pseudo.toml").read_text("utf-8"))
    file = ROOT / "docs" / "measured.json"
    measured = Run.from_json(file.read_text("utf-8")) if file.exists() else None
    pages = {f"decoders/{name}.md": page(method, pair, pseudo[name], measured) for name, method in catalog.items()}
    pages["decoders/index.md"] = index()
    pages["models.md"] = models()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    image = (ROOT / "assets" / "web" / "workbench.png").read_bytes()
    files.append(File.generated(config, "workbench.png", content=image))
    return files


def index() -> str:
    rows = [f"| [`{name}`]({name}.md) | {m.summary} | {claim(m)} | {m.paper} |" for name, m in catalog.items()]
    return "\n".join(
        ["# Decoders", "", "An *exact* decoder has, provably and by a test that enumerates every outcome, the law named here.", "",
         "| name | what it does | output | from |", "|---|---|---|---|", *rows, ""]
    )  # fmt: skip


def claim(method: type[Method]) -> str:
    return f"exact: {method.law}" if method.law else "its own"


def page(method: type[Method], pair: decoders.ModelPair, pseudo: str, measured: Run | None) -> str:
    parts = [f"# `{method.name}`", method.summary, f"From {method.paper}, {method.section}."]
    parts += ["## What it claims", proof(method)]
    parts += [
        "## How it works",
        f"```text\n{pseudo.strip()}\n```",
        "The real lines:",
        f"```text\n{source(method)}\n```",
    ]
    parts += ["## A real round", real_round(method, pair)]
    parts += ["## Settings", settings(method)]
    if measured is not None:
        parts += ["## Measured", figures(method, measured)]
    return "\n\n".join(parts) + "\n"


def proof(method: type[Method]) -> str:
    if method.law is None:
        return (
            "It claims no law of another decoder: its output is its own, usually likelier text than sampling gives. What it does is "
            "compared in the tests with a plain restatement of the paper."
        )
    return (
        f"Its output has the law of {PROVEN[method.law]}. The tests put made-up tables in the place of the models and a source that "
        "takes every way in turn in the place of the random generator, add up the probability of every output, and compare it with "
        "that law: the total variation is below 1e-9 in float64, with and without top-k, top-p, an end of text and temperature 0. "
        "You can [run the proof yourself](../own.md#prove-it)."
    )


def source(method: type[Method]) -> str:
    """Its `decode`, and the loop that it hands over to."""
    from decoders.methods.speculative import speculate

    lines = inspect.cleandoc("\n" + inspect.getsource(method.decode))
    shared = "" if "speculate(" not in lines else "\n\n\n" + inspect.getsource(speculate).strip()
    return lines + shared


def real_round(method: type[Method], pair: decoders.ModelPair) -> str:
    """The first round after the first that drafted or kept something, on the embedded pair."""
    result = decoders.generate(pair, PROMPT, method(), max_new_tokens=12, seed=3, temperature=1.0, top_k=20, top_p=0.9)
    entry = max(result.rounds[1:4] or result.rounds, key=lambda r: len({t.node for t in r.trials}))
    words = f"Round {entry.index + 1} of the embedded pair after *{PROMPT}* (T=1, top-k 20, top-p 0.9, seed 3). {FATE_WORDS}"
    return f"{words}\n\n{picture(entry, pair.tokenizer)}"


def settings(method: type[Method]) -> str:
    fields = dataclasses.fields(method)
    if not fields:
        return "It has none of its own."
    rows = [f"| `{f.name}` | `{f.default!r}` | {f.metadata['help'].replace('|', '/')} |" for f in fields]
    return "\n".join(["| name | default | what it is |", "|---|---|---|", *rows])


def figures(method: type[Method], measured: Run) -> str:
    """The row of this decoder in a run that was recorded for the documentation, with its date and machine."""
    table = tables.figures(measured)
    rows = [row for row, result in zip(table.rows, measured.results, strict=True) if result.decoder == method.name]
    env = measured.environment
    when = f"{measured.created:%Y-%m-%d}" if hasattr(measured.created, "strftime") else str(measured.created)[:10]
    machine = f"{env.get('device_name')}, {env.get('threads')} threads of {env.get('cpus')} CPUs, {env.get('dtype')}"
    if not rows:
        return "Not measured yet."
    lines = [f"| {head} | {cell} |" for head, cell in zip(table.heads, rows[0], strict=True)]
    asked = json.dumps(measured.title, ensure_ascii=False)
    return "\n".join(
        [f"On the embedded pair, {when}, {machine}, prompt {asked}:", "", "| | |", "|---|---|", *lines, "",
         "Speeds of a small machine that others used, too; ratios say more than tokens per second."]
    )  # fmt: skip


def models() -> str:
    from tests.decoders.test_architectures import REFUSED, RUN

    rows = [f"| {name} | runs |" for name in RUN] + [f"| {name} | refused, by name |" for name in REFUSED]
    return "\n".join(
        ["# Models that run", "",
         "Causal language models of transformers, tried tiny and random at every test run. *Runs* means: greedy, speculative decoding in a batch of three, and a draft tree are "
         "the likeliest tokens of plain forward passes. A model that would be wrong is refused by name before any work; never a wrong token.", "",
         "| type in transformers | |", "|---|---|", *rows, ""]
    )  # fmt: skip
