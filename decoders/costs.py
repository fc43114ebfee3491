"""What passes cost the turns that share them (count), or take them later (Ahead)."""

from collections.abc import Sequence
from dataclasses import dataclass

from decoders.engine.answers import Answer
from decoders.engine.protocols import Passes
from decoders.shapes import NodeId
from decoders.turn import Turn


def count(turn: Turn, model: str, engine: Passes, answer: Answer, sharing: int) -> None:
    """Add to one turn's ledger the cost of a pass that `sharing` turns shared.

    Args:
        turn: the turn
        model: the model that made it
        engine: the passes of that model
        answer: the turn's answer
        sharing: the number of turns
    """
    ledger = turn.request.ledger
    rows = engine.rows_of(turn.request.tree)
    read = answer.cache_bytes + answer.weight_bytes / sharing
    _count_bytes(turn, rows, answer.cache_bytes, read)
    if waste := answer.waste:
        ledger.padded_tokens += waste.tokens
        ledger.padded_rows += waste.rows
        if model == "target" and waste.longest_growth > 0:
            ledger.padding_ratios.append(waste.rows / waste.longest_growth)
    answered = answer.part is not None and not turn.unstarted
    ledger.count(model, answered, answer.passes)


@dataclass(frozen=True)
class Ahead:
    """Listens to the passes that were made before a turn asked for them.

    The turn pays for those that it takes, and its cache gets or gives back their rows.

    Attributes:
        turn: the turn
        model: the model that made them
        engine: the passes of that model
        weight_bytes: bytes of weights that each has read, or the turn's share
    """

    turn: Turn
    model: str
    engine: Passes
    weight_bytes: float

    def taken(self, count: int) -> None:
        self.turn.request.ledger.charge_ahead(self.model, count)

    def fed(self, nodes: Sequence[NodeId], seen: Sequence[int]) -> None:
        if nodes:
            self.engine.fed(self.turn.request.tree, nodes)
        each, rows = self.engine.model.row_bytes, max(seen)
        read = sum(seen) * each + len(seen) * self.weight_bytes
        _count_bytes(self.turn, rows, rows * each, read)

    def forget(self, place: int) -> None:
        self.engine.forget(self.turn.request.tree, place)


def _count_bytes(turn: Turn, rows: int, cache_bytes: int, read: float) -> None:
    ledger = turn.request.ledger
    ledger.bytes_read += read
    ledger.peak_rows = max(ledger.peak_rows, rows)
    ledger.peak_cache_bytes = max(ledger.peak_cache_bytes, cache_bytes)
