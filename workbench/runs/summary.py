"""Lines in the list of past runs, and the columns that they are read from."""

from dataclasses import dataclass

from pydantic import ConfigDict, TypeAdapter, ValidationError

from workbench.runs.ranking import Fastest

# Characters that a list reads of a title, of the models' names and of the sampling settings.
SHOWN = 200
# A row may be damaged in any way: every column is cut before it is read, and taken as text. A row
# without a valid id is named by its place.
READ = {
    "created": 40, "kind": 40, "prompt": SHOWN, "decoders": 10_000, "models": SHOWN,
    "fastest": 1000, "asked": SHOWN,
}  # fmt: skip
COLUMNS = ", ".join(
    f"CAST(substr(ifnull({name}, ''), 1, {most}) AS TEXT)" for name, most in READ.items()
)
ID = (
    "CASE WHEN typeof(id) = 'text' AND length(id) BETWEEN 1 AND 64 "
    "AND id NOT GLOB '*[^0-9a-f]*' THEN id ELSE 'row ' || rowid END"
)
DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A line in the list of past runs.

    Attributes:
        id: the run's id
        created: UTC, ISO 8601
        kind: kind of the study; DAMAGED for a damaged row
        title: its title; of a damaged row it says so
        decoders: its decoders
        models: the pair in one line
        fastest: the fastest decoder
        asked: the sampling settings, in words
    """

    id: str
    created: str
    kind: str
    title: str
    decoders: list[str]
    models: str
    fastest: Fastest | None = None
    asked: str = ""


def summary(
    id: str, created: str, kind: str, title: str, decoders: str, models: str, figures: str,
    drawn: str,
) -> RunSummary:  # fmt: skip
    try:
        listed = _LISTED.validate_json(f"[{decoders}, {figures or 'null'}]")
    except ValidationError:
        return RunSummary(
            id, created, DAMAGED, f"This row is damaged and can only be deleted: {id}", [], models
        )
    return RunSummary(id, created, kind, title, listed[0], models, listed[1], drawn)


_LISTED = TypeAdapter(
    tuple[list[str], Fastest | None], config=ConfigDict(strict=True, allow_inf_nan=False)
)
