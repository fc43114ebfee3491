"""What passes cost the turns that share them."""

from collections.abc import Sequence

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
    _count_bytes(turn, engine, answer.cache_bytes, answer.weight_bytes / sharing)
    if waste := answer.waste:
        ledger.padded_tokens += waste.tokens
        ledger.padded_rows += waste.rows
        if model == "target" and waste.longest_growth > 0:
            ledger.padding_ratios.append(waste.rows / waste.longest_growth)
    answered = answer.part is not None and not turn.unstarted
    ledger.count(model, answered, answer.passes)


def count_ahead(
    turn: Turn, model: str, engine: Passes, weight_bytes: float, nodes: Sequence[NodeId]
) -> None:
    """Add the cost of a pass that was made before it was asked for.

    Args:
        turn: the turn
        model: the model that made it
        engine: the passes of that model
        weight_bytes: bytes of weights that it read, or the turn's share
        nodes: the nodes that it fed
    """
    _count_bytes(turn, engine, engine.fed(turn.request.tree, nodes), weight_bytes)
    turn.request.ledger.count(model)
    turn.request.ledger.charge_ahead(model)


def _count_bytes(turn: Turn, engine: Passes, cache_bytes: int, weight_bytes: float) -> None:
    ledger = turn.request.ledger
    ledger.bytes_read += cache_bytes + weight_bytes
    ledger.peak_rows = max(ledger.peak_rows, engine.rows_of(turn.request.tree))
    ledger.peak_cache_bytes = max(ledger.peak_cache_bytes, cache_bytes)
