"""Runs that come from a file: checked whole before anything keeps them."""

from workbench.runs.record import Run
from workbench.studies.batch import Batch
from workbench.studies.kinds import STUDIES


def read(text: str | bytes) -> Run:
    """The run in a JSON export. Raises InputError, in one sentence, if any part of it cannot be shown: its settings are read as a new
    study's are. A study of a kind that this room does not know is left to the room that owns it."""
    run = Run.from_json(text)
    if run.kind in STUDIES:
        STUDIES[run.kind].from_json(_with_prompts(run))
    return run


def _with_prompts(run: Run) -> dict:
    """The study; batches of version 1 did not keep the texts of a file of prompts, and can be shown without."""
    prompts = run.study.get("prompts")
    if run.kind == Batch.kind and isinstance(prompts, dict) and prompts.get("texts") is None:
        return {**run.study, "prompts": {"name": str(prompts.get("name")), "texts": ["-"]}}
    return run.study
