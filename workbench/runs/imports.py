"""Runs that come from a file: checked whole before anything keeps them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from decoders import InputError
from decoders.inputs import is_whole
from workbench.runs.record import Run
from workbench.studies.batch import Batch
from workbench.studies.kinds import STUDIES
from workbench.studies.study import Study


def read(text: str | bytes, kinds: Mapping[str, type[Study]] = STUDIES) -> Run:
    """The run in a JSON export, its study complete: what the file leaves out has its default.

    kinds   the kinds of study that the caller can show
    Raises InputError, in one sentence, if any part of it cannot be shown: its settings are read as a new study's are.
    """
    run = Run.from_json(text)
    if run.kind not in kinds:
        raise InputError(f"This is a run of the kind {run.kind!r}, and here are only {', '.join(kinds)}.")
    return replace(run, study=_complete(run, kinds[run.kind]))


def _complete(run: Run, kind: type[Study]) -> dict[str, Any]:
    """The study as its own `to_json` has it. Batches of version 1 did not keep the texts of a file of prompts: they stay without."""
    prompts = run.study.get("prompts")
    if kind is not Batch or not isinstance(prompts, dict) or prompts.get("texts") is not None:
        return kind.from_json(run.study).to_json()
    name, count = prompts.get("name"), prompts.get("count")
    shown = {"name": name, "texts": ["-"] * len(run.results[0].samples if run.results else [0])}
    study = kind.from_json({**run.study, "prompts": shown}).to_json()
    if not is_whole(count) or count < 1:
        raise InputError(f"The number of prompts must be a whole number of at least 1, not {count!r:.80}.")
    return {**study, "prompts": {"name": name, "count": count, "texts": None}}
