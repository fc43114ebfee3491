"""The pages of speculative decoding, MTAD, DSBD and of the padding of batches (EMS-SD).

Source:
    Leviathan et al. 2023 (arXiv 2211.17192), section 3; Qin et al. 2024 (MTAD, arXiv 2407.09722;
    DSBD, arXiv 2409.16560) and Ni et al. 2024 (EMS-SD, arXiv 2405.07542, appendix B): the theorems,
    figures and equations named below.
"""

import plotly.graph_objects as go

from decoders import theory
from workbench.show.plots import canvas, level
from workbench.show.quantities import marked, percent, times
from workbench.studies.settings import counted
from workbench.theory.estimates import MeasuredBatch, MeasuredSpeculative, Measurements
from workbench.theory.page import UNIT, Page, Slider, Values, diamond, family

# ---- Speculative decoding


LONGEST = 32  # the largest gamma among which the best is searched
HIGHEST = 5  # times as fast, of the opening picture, where its point is no higher


def gain(alpha: float, c: float) -> float:
    return theory.walltime_factor(alpha, theory.best_gamma(alpha, c, LONGEST), c)


def gain_figure(v: Values, m: Measurements) -> go.Figure:
    run = m.speculative
    figure = family(
        canvas("how often a guess is kept", "times as fast"), UNIT, "cost",
        (0.02, 0.05, 0.1, 0.2, 0.5), v.c, lambda cost, a: gain(a, cost), (v.alpha, "{:.2f}×"),
        speed_of(run),
    )  # fmt: skip
    level(figure, 1)
    highest = max(gain(v.alpha, v.c), (run and run.speedup) or 0)
    return figure.update_yaxes(range=[0, max(HIGHEST, 1.2 * highest)])


def speed_of(run: MeasuredSpeculative | None) -> tuple[float, float | None, str] | None:
    return (run.alpha, run.speedup, "{:.2f}× measured") if run else None


def gained(v: Values) -> str:
    best, speed = theory.best_gamma(v.alpha, v.c, LONGEST), gain(v.alpha, v.c)
    pays = "" if speed > 1 else ": guessing does not pay here"
    guesses = counted(best, "guess", "guesses")
    return f"**{speed:.2f} times** as fast, with {guesses} before each pass{pays}."


def gain_of_run(m: Measurements) -> str:
    run = m.speculative
    if run is None:
        return "this run has no speculative decoding."
    text = f"{run.accepted} of {run.tested} guesses were kept ({percent(run.alpha)})"
    if run.c is not None:
        text += f", each cost {marked(percent(run.c), run.sure)} of a pass"
    if run.speedup is None:
        return f"{text}; greedy decoding did not run beside it."
    return f"{text}, and it was {marked(f'{run.speedup:.2f} times', run.sure)} as fast as greedy."


# What the tab opens with, for a reader of none of the papers.
FIRST = Page(
    title="How much faster?",
    source="",
    formula="",
    says="",
    fields=(
        Slider("alpha", "how often a guess is kept", "0 never, 1 always", 0.0, 1.0, 0.8),
        Slider("c", "what a guess costs", "1 is a pass of the large model", 0.0, 1.0, 0.05),
    ),
    figure=gain_figure,
    now=gained,
    of_run=gain_of_run,
)


def speedup_figure(v: Values, m: Measurements) -> go.Figure:
    figure = family(
        canvas("acceptance α", "speed-up"), UNIT, "γ", (1, 2, 4, 8, 16), v.gamma,
        lambda g, a: theory.walltime_factor(a, g, v.c), (v.alpha, "{:.2f}×"),
        speed_of(m.speculative),
    )  # fmt: skip
    level(figure, 1)
    return figure


def speculative_now(v: Values) -> str:
    best = theory.best_gamma(v.alpha, v.c, LONGEST)
    return (
        f"**{theory.expected_tokens(v.alpha, v.gamma):.2f}** tokens per round"
        f" · **{theory.walltime_factor(v.alpha, v.gamma, v.c):.2f}×** the speed"
        f" · best γ here **{best}** ({theory.walltime_factor(v.alpha, best, v.c):.2f}×)"
    )


def speculative_of_run(m: Measurements) -> str:
    run = m.speculative
    if run is None:
        return "This run has no rounds of speculative decoding."
    # Three digits, and what follows from these.
    alpha, gamma = (float(f"{value:.3g}") for value in (run.alpha, run.gamma))
    tokens = theory.expected_tokens(alpha, gamma)
    text = (
        f"Speculative decoding kept {run.accepted} of the {run.tested} draft tokens that it tested,"
        f" α = {alpha:g}, and gained {run.tokens:.2f} tokens per round with γ = {gamma:g} on"
        f" average (expected {tokens:.2f})."
    )
    if run.speedup is None:
        return f"{text} c and the speed-up were not measured, because greedy did not run."
    speed = marked(times(run.speedup), run.sure)
    if run.c is None or run.verify_cost is None:
        return f"{text} Its speed was {speed} greedy’s; no draft model ran, so there is no c."
    c, verify = (float(f"{value:.3g}") for value in (run.c, run.verify_cost))
    expected = marked(times(theory.walltime_factor(alpha, gamma, c)), run.sure)
    with_verify = marked(times(tokens / (gamma * c + verify)), run.sure)
    return (
        f"{text} A draft pass took c = {marked(f'{c:g}', run.sure)} of greedy’s pass: theorem 3.8"
        f" expects {expected}, measured {speed}. It assumes that verifying γ+1 tokens takes as long"
        f" as one pass; here it took {marked(f'{verify:g}', run.sure)} passes, with which the"
        f" expectation is {with_verify}."
    )


SPECULATIVE = Page(
    title="Speculative",
    source="Leviathan et al. 2023, §3",
    formula=r"\frac{1-\alpha^{\gamma+1}}{(1-\alpha)(\gamma c+1)}",
    says="Drafting costs time too; below 1 it does not pay. Assumes that verifying takes as long "
    "as one pass. Theorem 3.8, figure 4.",
    fields=(
        Slider("alpha", "acceptance α", "chance that a draft token is kept", 0.0, 1.0, 0.8),
        Slider("c", "cost c", "time of a draft pass over a target pass", 0.0, 1.0, 0.05),
        Slider("gamma", "draft length γ", "tokens drafted per round", 1, 32, 5, 1),
    ),
    figure=speedup_figure,
    now=speculative_now,
    of_run=speculative_of_run,
)


# ---- Multi-token assisted decoding


def kept_figure(v: Values, m: Measurements) -> go.Figure:
    run = m.mtad
    return family(
        canvas("U = largest |ln p − ln q|, nats", "tokens per round, at least"),
        [0.02 * i for i in range(1, 251)], "τ", (0.9, 0.5, 0.2, 0.1, 0.01), v.tau,
        lambda t, u: 1 + theory.mtad_kept_length(t, u, v.gamma), (v.U, "{}"),
        (run.U, run.gamma_bar, f"{{:.2f}} measured, U ≥ {run.U:.2f}")
        if run and run.U is not None
        else None,
        shape="hv",
    ).update_yaxes(rangemode="tozero")  # fmt: skip


def mtad_now(v: Values) -> str:
    least = 1 + theory.mtad_kept_length(v.tau, v.U, v.gamma)
    return f"At least **{least}** tokens per round"


def mtad_of_run(m: Measurements) -> str:
    run = m.mtad
    if run is None:
        return "This run has no rounds of MTAD."
    U = (
        "U was not measured: no draft token had both p and q above 0."
        if run.U is None
        else f"Over {run.compared} draft tokens the largest |ln p − ln q| was {run.U:.2f} nats"
        f" ({run.ratio} distributions): U is at least that, because it is the maximum over all"
        " tokens and contexts."
    )
    if run.one_sided:
        U += (
            f" For {run.one_sided} more, either p or q was 0, so here U is infinite and the"
            " theorem promises nothing."
        )
    return (
        f"MTAD gained γ̄ = {run.gamma_bar:.2f} tokens per round with γ = {run.draft_length},"
        f" τ = {run.threshold:g}. {U}"
    )


MTAD = Page(
    title="MTAD",
    source="Qin et al. 2024, Multi-token assisted decoding, §3.2",
    formula=r"\bar\gamma \ge \frac{|\ln\tau|}{U}",
    says="Models that never differ by more than U cannot fail the threshold at once. The steps are "
    "the whole tokens that the rule promises: min(γ, ⌈|ln τ|/U⌉ − 1) and one more. Theorem 3.6.",
    fields=(
        Slider("tau", "threshold τ", "least joint p/q of a kept prefix", 0.01, 0.99, 0.1),
        Slider("U", "distance U", "largest |ln p − ln q|, nats", 0.02, 5.0, 0.5),
        Slider("gamma", "draft length γ", "tokens drafted per round", 1, 16, 8, 1),
    ),
    figure=kept_figure,
    now=mtad_now,
    of_run=mtad_of_run,
)


# ---- Dynamic-width speculative beam decoding


def steps_figure(v: Values, m: Measurements) -> go.Figure:
    run = m.dsbd
    return family(
        canvas("chance β that W<sub>min</sub> beams are accepted", "layers per round, at least"),
        UNIT, "γ", (1, 2, 3, 4, 8), v.gamma, lambda g, b: theory.dsbd_steps(b, g, v.t),
        (v.beta, "{:.2f}"),
        (run.layer_acceptance, run.steps, "{:.2f} measured") if run else None,
    )  # fmt: skip


def dsbd_now(v: Values) -> str:
    return f"At least **{theory.dsbd_steps(v.beta, v.gamma, v.t):.2f}** layers per round"


def dsbd_of_run(m: Measurements) -> str:
    run = m.dsbd
    if run is None:
        return "This run has no rounds of DSBD."
    return (
        f"DSBD passed {run.passed} of the {run.verified} layers it verified"
        f" ({run.layer_acceptance:.2f}, an estimate of the mean of min(t, β)) and gained"
        f" {run.steps:.2f} layers per round with γ = {run.gamma:.2f} on average."
        " The theorem is a lower bound for a constant β, or for"
        " the minimum of β: compared with its mean, a run may lie on either side."
    )


DSBD = Page(
    title="DSBD",
    source="Qin et al. 2024, Dynamic-width speculative beam decoding, §3.2",
    formula=r"E(\text{layers}) \ge \frac{1-\min(t,\beta)^{\gamma+1}}{1-\min(t,\beta)}",
    says="The width is chosen so that a layer passes with a chance of about t, if β allows it: "
    "beyond t the curves are flat. A lower bound. Theorem 3.2.",
    fields=(
        Slider("beta", "yield β", "chance that a layer’s draws yield W_min beams", 0.0, 1.0, 0.8),
        Slider("t", "threshold t", "desired chance that a layer passes", 0.0, 1.0, 0.9),
        Slider("gamma", "draft length γ", "layers drafted per round", 1, 16, 2, 1),
    ),
    figure=steps_figure,
    now=dsbd_now,
    of_run=dsbd_of_run,
)


# ---- The padding of batches


def padding_figure(v: Values, m: Measurements) -> go.Figure:
    run = m.speculative

    def exact(batch: float, p: float) -> float:
        return theory.expected_padding(p, int(batch), v.cap)

    figure = family(
        canvas("next-token accuracy p", "padding ratio r̄"), UNIT, "b", (2, 4, 8, 16, 32), v.batch,
        exact, (v.p, "{:.2f}"),
        (run.alpha, exact(v.batch, run.alpha), "{:.2f} for the run’s α") if run else None,
    )  # fmt: skip
    for each in m.batches:
        diamond(figure, each.p, each.padding.get(v.batch), f"{{:.2f}} measured, {each.decoder}")
    return figure


def ems_sd_now(v: Values) -> str:
    padding = theory.expected_padding(v.p, v.batch, v.cap)
    return f"**{padding:.0%}** of a padded batch is padding, and none of a packed one"


def ems_sd_of_run(m: Measurements) -> str:
    if m.batches:
        return "\n\n".join(map(of_batch, m.batches))
    if m.speculative is None:
        return "This run has neither batches nor rounds of speculative decoding."
    return (
        f"Speculative decoding kept α = {m.speculative.alpha:.2f} of the draft tokens that it"
        " tested: the diamond shows the formula’s padding of a batch of such requests. A"
        " run of the Batch tab measures padding itself."
    )


def of_batch(run: MeasuredBatch) -> str:
    return (
        f"The acceptance lengths of {run.decoder} together give p = {run.p:.2f}. The formula takes"
        " all requests to be alike: it leaves out that some stay slow and others stay fast."
    )


EMS_SD = Page(
    title="EMS-SD",
    source="Ni et al. 2024, appendix B",
    formula=r"\bar r = 1-\frac1b\sum_i\frac{\tau_i}{\tau_{max}},\quad"
    r" \tau_{max} = \max(\tau_0,\dots,\tau_{b-1})",
    says="The request that gains most sets the length to which all others are padded; the rest is "
    "computed and cached for nothing. Batches here can be packed without any. Figure 6.",
    fields=(
        Slider("p", "accuracy p", "chance that the next draft token is right", 0.0, 1.0, 0.7),
        Slider("batch", "batch size b", "requests decoded at once", 1, 32, 8, 1),
        Slider("cap", "cap", "longest acceptance possible", 1, 16, 8, 1),
    ),
    figure=padding_figure,
    now=ems_sd_now,
    of_run=ems_sd_of_run,
)
