"""What passes cost the turns that share them."""

from decoders.engine.answers import Answer
from decoders.engine.protocols import Passes
from decoders.shapes import NodeId
from decoders.turn import Turn


def count(
    turn: Turn, model: str, engine: Passes, answer: Answer, sharing: int, node: NodeId | None = None
) -> None:
    """Add to one turn's ledger the cost of a pass that `sharing` turns shared.

    Args:
        turn: the turn
        model: the model that made it
        engine: the passes of that model
        answer: the turn's answer
        sharing: the number of turns
        node: the node that the pass fed, if it was made in advance together with that of the answer
    """
    ledger, tree = turn.request.ledger, turn.request.tree
    cache_bytes = answer.cache_bytes if node is None else engine.fed(tree, node)
    ledger.bytes_read += cache_bytes + answer.weight_bytes / sharing
    if waste := answer.waste:
        ledger.padded_tokens += waste.tokens
        ledger.padded_rows += waste.rows
        if model == "target" and waste.longest_growth > 0:
            ledger.padding_ratios.append(waste.rows / waste.longest_growth)
    ledger.peak_rows = max(ledger.peak_rows, engine.rows_of(tree))
    ledger.peak_cache_bytes = max(ledger.peak_cache_bytes, cache_bytes)
    answered = answer.part is not None and not turn.unstarted
    ledger.count(model, answered, answer.passes)
    if node is not None:
        ledger.charge_ahead()
