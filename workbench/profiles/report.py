"""The gains of methods on a server as a table and a few sentences."""

from collections.abc import Mapping, Sequence

from workbench.profiles.costs import Steps
from workbench.profiles.gain import Gain, best
from workbench.profiles.profile import Curve
from workbench.show.tables import Table
from workbench.theory.schedules import vllm_flag

HEADS = ["method", "texts", "at once", "drafts", "tokens", "steps"]
Found = Mapping[Curve, Sequence[Gain]]


def table(found: Found, drafting: float | None) -> Table:
    """A row for each curve and load, with the draft length that gains most."""
    rows = [
        [
            curve.method, curve.category, f"{load:,}", str(gain.point.draft_length),
            f"{gain.point.length:.2f}", f"{gain.cost:.2f}", f"{gain.times:.2f}",
        ]
        for curve, each in found.items()
        for load, gain in best(each).items()
    ]  # fmt: skip
    return Table([*HEADS, "x, drafts free" if drafting is None else "x greedy"], rows)


def sentences(
    found: Found, steps: Steps, loads: Sequence[int], drafting: float | None
) -> list[str]:
    """What a reader of the table must know."""
    says = [
        "Tokens are those that a verification writes, the target's included; steps are its cost in "
        "plain steps of the server at the same load.",
        f"Costs of {steps.server}. A verification of k + 1 tokens for c requests is taken to cost "
        "a plain step of c (k + 1) requests. Where texts are long, or between numbers of requests "
        "that were measured, it may cost less, and the gain is larger.",
    ]
    says.append(
        "Drafting is not counted: at these costs of verification the gains are upper bounds where "
        "drafting costs anything. Name its cost with --drafting."
        if drafting is None
        else f"A draft token is taken to cost {drafting:g} of a plain step at every load."
    )
    known = {gain.requests for each in found.values() for gain in each}
    if missing := [load for load in loads if load not in known]:
        says.append(
            f"Not known at {', '.join(map(str, missing))} at once: costs are measured up to "
            f"{steps.largest:,} requests."
        )
    if len(found) == 1:
        (each,) = found.values()
        lengths = {n: g.point.draft_length if g.times > 1 else 0 for n, g in best(each).items()}
        says.append(
            f"vLLM takes these lengths as {vllm_flag(lengths)}, with its method and draft added."
            if any(lengths.values())
            else "Drafts do not pay at these loads."
        )
    return says
