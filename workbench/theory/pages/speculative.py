"""Speculative decoding (speculative-decoding.txt §3, tables 1 and 4)."""

from decoders import theory
from workbench.show.tables import Table, markdown
from workbench.theory import charts
from workbench.theory.estimates import Measured, MeasuredSpeculative
from workbench.theory.pages.page import Card, Page, Slider, Values
from workbench.theory.papers import TABLE_1, TABLE_4


def now(v: Values) -> str:
    best = theory.best_gamma(v.alpha, v.c, charts.LONGEST)
    return (
        f"**{theory.expected_tokens(v.alpha, v.gamma):.2f}** tokens per round · **{theory.walltime_factor(v.alpha, v.gamma, v.c):.2f}×** the speed"
        f" · **{theory.operations_factor(v.alpha, v.gamma, v.c_hat):.2f}×** the operations"
        f" · best γ here **{best}** ({theory.walltime_factor(v.alpha, best, v.c):.2f}×)"
    )


def found(m: Measured) -> str:
    run = m.speculative
    if run is None:
        return "This run has no rounds of speculative decoding."
    text = (
        f"Speculative decoding kept {run.accepted} of the {run.tested} draft tokens that it tested, α = {run.alpha:.2f}, and gained"
        f" {run.tokens:.2f} tokens per round with γ = {run.gamma:.2f} on average"
        f" (expected {theory.expected_tokens(run.alpha, run.gamma):.2f})."
    )
    if run.c is None or run.speedup is None or run.verify_cost is None:
        return f"{text} c and speed-up: not measured, because greedy did not run."
    cost = run.gamma * run.c + run.verify_cost
    return (
        f"{text} A draft pass took c = {run.c:.2f} of greedy’s pass: theorem 3.8 expects"
        f" {run.expected_speedup:.2f}×, measured {run.speedup:.2f}×. It assumes that verifying γ+1 tokens is as quick as one; here it"
        f" took {run.verify_cost:.2f} passes, with which the expectation is"
        f" {theory.expected_tokens(run.alpha, run.gamma) / cost:.2f}×."
    )


def tables(m: Measured) -> str:
    first = [
        [f"{r.alpha}", f"{r.gamma}", f"{r.operations:.2f}×", f"{theory.operations_factor(r.alpha, r.gamma, 0):.2f}×",
         f"{r.speed:.2f}×", f"{theory.walltime_factor(r.alpha, r.gamma, 0):.2f}×"]
        for r in TABLE_1
    ]  # fmt: skip
    fourth = [
        [f"{r.task}, {r.draft}, T = {r.temperature}", f"{r.gamma}", f"{r.alpha:.2f}", f"{r.c:.2f}", f"{r.expected:.1f}×",
         f"{theory.walltime_factor(r.alpha, r.gamma, r.c):.2f}×", f"{r.empirical:.1f}×"]
        for r in TABLE_4
    ]  # fmt: skip
    if m.speculative:
        fourth.append(_measured_row(m.speculative))
    return (
        "**Table 1** · operations and speed for c = ĉ = 0\n\n"
        + markdown(Table(["α", "γ", "operations, paper", "formula", "speed, paper", "formula"], first))
        + "\n\n**Table 4** · expected and measured speed-up\n\n"
        + markdown(Table(["run", "γ", "α", "c", "expected, paper", "formula", "measured"], fourth))
    )


def _measured_row(run: MeasuredSpeculative) -> list[str]:
    def shown(value: float | None, form: str) -> str:
        return "not measured" if value is None else f"**{value:{form}}**"

    return [
        "**the run here**", f"**{run.gamma:.2f}**", f"**{run.alpha:.2f}**", shown(run.c, ".2f"), "–",
        shown(run.expected_speedup, ".2f"), shown(run.speedup, ".2f"),
    ]  # fmt: skip


SPECULATIVE = Page(
    "Speculative",
    "Leviathan et al. 2023, §3",
    (
        Slider("alpha", "acceptance α", "chance that a draft token is kept", 0.0, 1.0, 0.8),
        Slider("gamma", "draft length γ", "tokens drafted per round", 1, 32, 5, 1),
        Slider("c", "cost c", "time of a draft pass over a target pass", 0.0, 1.0, 0.05),
        Slider("c_hat", "operations ĉ", "of the draft over the target, per token", 0.0, 1.0, 0.0),
    ),
    (
        Card(
            "Tokens per round", r"E(\text{tokens}) = \frac{1-\alpha^{\gamma+1}}{1-\alpha}",
            "Each target pass yields the drafts kept and one token of its own. Equation 1, figure 2.",
            lambda v, m: charts.tokens_figure(v.alpha, v.gamma, m.speculative),
        ),
        Card(
            "Speed-up", r"\frac{1-\alpha^{\gamma+1}}{(1-\alpha)(\gamma c+1)}",
            "Drafting costs time too; below 1 it does not pay. Assumes that verifying is as quick as one pass. Theorem 3.8, figure 4.",
            lambda v, m: charts.speedup_figure(v.alpha, v.gamma, v.c, m.speculative),
        ),
        Card(
            "Best draft length", r"\gamma^* = \arg\max_\gamma \frac{1-\alpha^{\gamma+1}}{(1-\alpha)(\gamma c+1)}",
            "The better and the cheaper the draft model, the longer it should write. Searched up to 32. Figure 3.",
            lambda v, m: charts.best_gamma_figure(v.alpha, v.c, m.speculative),
        ),
        Card(
            "Operations", r"\frac{(1-\alpha)(\gamma \hat c+\gamma+1)}{1-\alpha^{\gamma+1}}",
            "The price: refused drafts are wasted arithmetic. Theorem 3.11, figure 4.",
            lambda v, m: charts.operations_figure(v.alpha, v.gamma, v.c_hat),
        ),
        Card(
            "Expected against measured", r"\frac{1-\alpha^{\gamma+1}}{(1-\alpha)(\gamma c+1)} \;\text{ against the clock}",
            "The paper’s twelve runs, and the one chosen above. On the dotted line theory and clock agree. Table 4.",
            lambda v, m: charts.table_4_figure(m.speculative),
        ),
    ),
    now, found, tables,
)  # fmt: skip
