"""From a pass to the turns that share it: readings, and what was made in advance."""

from collections.abc import Mapping, Sequence

from decoders.costs import Ahead
from decoders.devices import device_of
from decoders.engine.answers import Answer, Further
from decoders.engine.kernels.loading import scan_for
from decoders.engine.protocols import Begun, Passes, Wants
from decoders.foreseen import Foreseen
from decoders.penalties import applied
from decoders.reading import Readings
from decoders.scan import Found
from decoders.shapes import Logits
from decoders.turn import Turn


def read(
    rows: Logits, asking: Sequence[Turn], ahead: bool = False, found: Found | None = None
) -> Readings:
    """The readings of a pass.

    Args:
        rows: the logits of the pass, (nodes, V)
        asking: the turns of the pass, which all wait for one model
        ahead: whether most rows are of passes in advance; they will probably all be looked at
        found: what was already read of them
    """
    every = ahead or all(turn.waiting.model != "target" for turn in asking)
    temperatures = {turn.request.warping.temperature for turn in asking}
    held = max(t.held for t in asking)
    # Of an array on the host Python learns in less time what it is than of a tensor.
    numbers = rows.numpy() if device_of(rows.device).on_host else rows
    return Readings(numbers, held, temperatures, every, scan_for(numbers), found)


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


def rounds_made(turn: Turn, engines: Mapping[str, Passes]) -> dict[str, Further]:
    """Rounds that are made, by model, when a turn that is alone begins to draft; perhaps none."""
    ask = turn.waiting
    drafts = ask.model == "draft" and ask.steps and not turn.drawn
    if not (drafts and turn.before.rounds_left):  # no others like this one will follow
        return {}
    begun = Begun(turn.request.tree, turn.last, ask.steps, turn.rounds_ahead)
    made = engines["target"].rounds(engines["draft"], begun) or ()
    return dict(zip(("target", "draft"), made, strict=False))


def shares(further: Mapping[str, Further]) -> list[tuple[str, float, int]]:
    """Who made passes in advance, the bytes of weights that each reads, and how many there are.

    Passes made in one call are not timed apart; mostly they wait for weights, so the time is shared
    by these bytes.
    """
    return [(model, made.weight_bytes, made.passes) for model, made in further.items()]


def foreseen(
    turn: Turn,
    further: Mapping[str, Further],
    engines: Mapping[str, Passes],
    readings: Readings | None = None,
    sharing: int = 1,
) -> dict[str, Foreseen]:
    """What a turn takes passes made in advance from, by model.

    Args:
        turn: the turn
        further: passes made in advance, by model
        engines: the passes of each model
        readings: those of a pass that it answers, and of the passes made with it
        sharing: the number of turns that share it
    """
    found, warping = {}, turn.request.warping
    for model, made in further.items():
        most, own = turn.held_of(model), readings
        if own is None:
            own = Readings(
                made.rows, most, {warping.temperature}, True, scan_for(made.rows), made.found
            )
        listener = Ahead(turn, model, engines[model], made.weight_bytes / sharing)
        found[model] = Foreseen(turn.request.tree, made, own, most, listener)
    return found
