"""What passes cost the turns that share them."""

from dataclasses import replace

from decoders.engine.answers import Answer
from decoders.engine.protocols import Passes
from decoders.shapes import NodeId
from decoders.turn import Turn


def count(turn: Turn, model: str, engine: Passes, answer: Answer, sharing: int) -> None:
    """Add to one turn's ledger the cost of a pass that `sharing` turns shared."""
    ledger = turn.request.ledger
    ledger.bytes_read += answer.cache_bytes + answer.weight_bytes / sharing
    if waste := answer.waste:
        ledger.padded_tokens += waste.tokens
        ledger.padded_rows += waste.rows
        if model == "target" and waste.longest_growth > 0:
            ledger.padding_ratios.append(waste.rows / waste.longest_growth)
    ledger.peak_rows = max(ledger.peak_rows, engine.rows_of(turn.request.tree))
    ledger.peak_cache_bytes = max(ledger.peak_cache_bytes, answer.cache_bytes)
    answered = answer.part is not None and not turn.unstarted
    ledger.count(model, answered, answer.passes)


def count_ahead(
    turn: Turn, model: str, engine: Passes, answer: Answer, sharing: int, node: NodeId
) -> None:
    """Count a pass that was made together with another, once its node is known."""
    read = engine.fed(turn.request.tree, node)
    count(turn, model, engine, replace(answer, cache_bytes=read), sharing)
    turn.request.ledger.charge_ahead()
