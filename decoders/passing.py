"""From a pass to the turns that share it: readings, and what was made in advance."""

from collections.abc import Mapping, Sequence

import torch

from decoders.costs import Ahead
from decoders.engine.answers import Answer, Further
from decoders.engine.kernels.loading import scan_for
from decoders.engine.protocols import Passes, Verified, Wants
from decoders.foreseen import Foreseen
from decoders.penalties import applied
from decoders.reading import Readings
from decoders.shapes import Logits
from decoders.turn import Turn


def read(rows: Logits, asking: Sequence[Turn], ahead: bool = False) -> Readings:
    """The readings of a pass.

    Args:
        rows: the logits of the pass, (nodes, V)
        asking: the turns of the pass, which all wait for one model
        ahead: whether most rows are of passes in advance; they will probably all be looked at
    """
    every = ahead or all(turn.waiting.model != "target" for turn in asking)
    temperatures = {turn.request.warping.temperature for turn in asking}
    return Readings(rows, max(t.held for t in asking), temperatures, every, scan_for(rows))


def penalised(answers: Sequence[Answer], asking: Sequence[Turn], wants: Wants) -> Logits:
    """The rows of a pass, changed by each request's penalties for the text ending at each node."""
    rows = answers[0].rows
    if not any(turn.request.penalties for turn in asking):
        return rows
    rows = rows.clone()
    for turn, (tree, nodes), answer in zip(asking, wants, answers, strict=True):
        if turn.request.penalties and answer.part is not None and not turn.unstarted:
            for place, node in zip(range(len(rows))[answer.part], nodes, strict=True):
                rows[place] = applied(turn.request.penalties, tree.text(node), rows[place])
    return rows


def made_ahead(
    turn: Turn, answer: Answer, engines: Mapping[str, Passes], alone: bool
) -> dict[str, Further]:
    """The passes made in advance for a turn, by model: those of its own model, or whole rounds.

    Args:
        turn: the turn
        answer: its answer
        engines: the passes of each model
        alone: whether no other turn is active
    """
    model, nodes = turn.waiting.model, turn.waiting.nodes
    if answer.further:
        return {model: answer.further}
    if not (alone and turn.waiting.rounds_left and len(nodes) > 1) or answer.logits is None:
        return {}

    def drawn() -> Logits:
        return torch.stack([turn.known["draft"][node].row for node in nodes[:-1]])

    last = Verified(turn.request.tree, nodes, answer.logits, drawn, turn.rounds_ahead)
    rounds = engines[model].rounds(engines["draft"], last)
    return {
        role: made
        for role, made in zip(("target", "draft"), rounds or (), strict=False)
        if made.passes
    }


def shares(answer: Answer, further: Mapping[str, Further]) -> list[tuple[str, float]]:
    """For each pass made in advance, who made it, and its time as a multiple of that of `answer`.

    Passes made in one call are not timed apart; mostly they wait for weights, so a share of the
    time goes by the bytes of weights that each reads.
    """
    return [
        (model, made.weight_bytes / answer.weight_bytes)
        for model, made in further.items()
        for _ in made.passes
    ]


def foreseen(
    turn: Turn,
    further: Mapping[str, Further],
    engines: Mapping[str, Passes],
    readings: Readings,
    sharing: int,
) -> dict[str, Foreseen]:
    """What a turn takes passes made in advance from, by model.

    Args:
        turn: the turn
        further: see `made_ahead`
        engines: the passes of each model
        readings: those of the pass that it answers, and of passes made with it
        sharing: the number of turns that share it
    """
    found, warping = {}, turn.request.warping
    for model, made in further.items():
        most, own = turn.held_of(model), readings
        if made.rows is not readings.rows:
            own = Readings(made.rows, most, {warping.temperature}, True, scan_for(made.rows))
        listener = Ahead(turn, model, engines[model], made.weight_bytes / sharing)
        found[model] = Foreseen(turn.request.tree, made, own, most, listener)
    return found
