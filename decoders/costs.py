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
    ledger.bytes_read += answer.cache_bytes + answer.weight_bytes / sharing
    ledger.peak(rows, answer.cache_bytes)
    if waste := answer.waste:
        ledger.padded_tokens += waste.tokens
        ledger.padded_rows += waste.rows
        if model == "target" and waste.longest_growth > 0:
            ledger.padding_ratios.append(waste.rows / waste.longest_growth)
    answered = answer.part is not None and not turn.unstarted
    ledger.count(model, int(answered), answer.passes)


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
        ledger, row_bytes = self.turn.request.ledger, self.engine.model.row_bytes
        for rows in seen:
            ledger.bytes_read += rows * row_bytes + self.weight_bytes
        ledger.peak(max(seen), max(seen) * row_bytes)

    def forget(self, place: int) -> None:
        self.engine.forget(self.turn.request.tree, place)
