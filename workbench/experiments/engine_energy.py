"""Energy of a server under load: measured in total, and its parts by a model.

The model multiplies passes by what they cost, in passes of the target over one token. The plan's
author knows the costs, the server tells the passes; without either there are no parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.experiments.engine_figures import metric, ratio
from workbench.experiments.figures import Interval, good
from workbench.experiments.plan import Costs
from workbench.experiments.rows import Kept

PARTS = ("prompts", "drafting", "verifying", "refused")


@dataclass(frozen=True)
class Spent:
    """The energy of a cell.

    Attributes:
        joules: of a load, the mean of its timings
        per_token: joules for each output token
        per_accepted: joules for each accepted draft token, None if none are told
        parts: joules of a load for each of PARTS, by the model; None if costs or passes are not
            known
    """

    joules: Interval
    per_token: Interval | None
    per_accepted: Interval | None
    parts: Mapping[str, float] | None


def spent(kept: Kept, costs: Costs | None) -> Spent | None:
    """The energy of a cell, None if it was not measured."""
    joules = ratio(kept, metric("joules"), lambda _: 1.0)
    if joules is None:
        return None
    shares = None if costs is None else work(kept, costs)
    whole = sum(shares.values()) if shares else 0.0
    return Spent(
        joules,
        ratio(kept, metric("joules"), metric("new_tokens")),
        ratio(kept, metric("joules"), metric("accepted")),
        {name: joules.value * share / whole for name, share in shares.items()}
        if shares and whole
        else None,
    )


def work(kept: Kept, costs: Costs) -> dict[str, float] | None:
    """What each part takes of all timings, in passes of the target; None if passes are not told.

    Refused draft tokens are drafted and verified in vain: that is work of its own, and not counted
    as drafting or verifying.
    """
    rows = [row.result for row in good(kept).values()]
    requests = sum(len(result.samples) for result in rows)
    if kept.asked["settings"].get("draft_length") == 0:
        # A pass for each token after the first, which the prompt's pass gives.
        steps = sum(metric("new_tokens")(result) or 0 for result in rows) - requests
        drafted = accepted = 0.0
    else:
        told = [
            [metric(name)(result) for result in rows]
            for name in ("verifications", "drafted", "accepted")
        ]
        if any(value is None for values in told for value in values):
            return None
        steps, drafted, accepted = (sum(value or 0 for value in values) for values in told)
    return {
        "prompts": requests * costs.prompt,
        "drafting": accepted * costs.draft,
        "verifying": steps + accepted * costs.token,
        "refused": (drafted - accepted) * (costs.draft + costs.token),
    }
