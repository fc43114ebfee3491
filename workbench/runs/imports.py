"""Runs that come from a file: checked whole before anything keeps them."""

from typing import Any

from decoders import InputError
from decoders.inputs import is_whole
from workbench.runs.record import Run
from workbench.studies.batch import Batch
from workbench.studies.kinds import STUDIES


def read(text: str | bytes) -> Run:
    """The run in a JSON export, as it was made.

    Raises InputError, in one sentence, if any part of it cannot be shown: its settings are read as a new study's are.
    """
    run = Run.from_json(text)
    if run.kind not in STUDIES:
        raise InputError(f"This is a run of the kind {run.kind!r}; {', '.join(STUDIES)} can be shown here.")
    STUDIES[run.kind].from_json(_with_texts(run) if run.kind == Batch.kind else run.study)
    return run


def _with_texts(run: Run) -> dict[str, Any]:
    """The study of a batch; version 1 did not keep the texts of a file of prompts, and its runs can be shown without them."""
    prompts = run.study.get("prompts")
    if not isinstance(prompts, dict) or prompts.get("texts") is not None:
        return run.study
    count = prompts.get("count")
    if not is_whole(count) or count < 1:
        raise InputError(f"The number of prompts must be a whole number of at least 1, not {count!r:.80}.")
    return {**run.study, "prompts": {"name": prompts.get("name"), "texts": ["-"]}}
