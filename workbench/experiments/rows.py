"""What comes of a cell and an item: plain data, as the journal keeps it."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Output:
    """What was written after one prompt.

    tokens    ids;   gained, drafted  for each round the tokens that the output gained and those that were drafted
    scores    what its scorer said, None if it has none;   category, id  of the prompt, as its set has them
    """

    prompt: int
    prompt_tokens: int
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    gained: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    finished: str | None = None
    error: str | None = None
    scores: dict[str, Any] | None = None
    category: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """metrics   by the names of `decoders.Metrics`, over the item's prompts together;   energy  where the joules come from
    load      what disturbed the timing;   host  the machine;   error  one sentence if nothing could be decoded"""

    cell: str
    item: int
    outputs: list[Output]
    metrics: dict[str, Any] = field(default_factory=dict)
    energy: str = ""
    load: dict[str, Any] = field(default_factory=dict)
    host: str = ""
    error: str | None = None

    @property
    def errors(self) -> list[str]:
        return [self.error] if self.error else [o.error for o in self.outputs if o.error]

    def dumps(self) -> str:
        data = {name: value for name, value in asdict(self).items() if name not in ("cell", "item")}
        return json.dumps(data, separators=(",", ":"))

    @staticmethod
    def loads(cell: str, item: int, text: str) -> "Row":
        data = json.loads(text)
        return Row(cell, item, [Output(**o) for o in data.pop("outputs")], **data)
