"""Cells that run together (Block), whatever they are cells of."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Line(Protocol):
    """A cell: one line of a table."""

    @property
    def prompts(self) -> str:
        """Name of its set of prompts."""
        ...

    def to_json(self) -> dict[str, Any]:
        """All settings that can change the answer, and the names that readers need."""
        ...


@dataclass(frozen=True)
class Block:
    """Cells that take turns on each item.

    Timed cells share a block with greedy; each other cell has its own. The loads on one server
    share a block.

    Attributes:
        part: name of the part of the plan
        id: hash of the block
        ids: hash of each cell
        labels: label of each cell
        cells: the cells, all of one kind
        items: by number, in the order in which they run, the prompts that are decoded together; a
            number means the same prompts under any limit
        alone: blocks with the same name here run one at a time, whoever runs them; "" beside others
    """

    part: str
    id: str
    ids: tuple[str, ...]
    labels: tuple[str, ...]
    cells: tuple[Line, ...]
    items: Mapping[int, tuple[int, ...]]
    alone: str = ""

    @property
    def prompts(self) -> str:
        return self.cells[0].prompts


def digest(value: Any) -> str:
    """A short hash of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
