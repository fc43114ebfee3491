"""The page of speculative decoding.

Source:
    Leviathan et al. 2023 (arXiv 2211.17192), section 3: the theorems, figures and tables named
    below.
"""

import plotly.graph_objects as go

from decoders import theory
from workbench.show.plots import GREY, canvas, level
from workbench.show.quantities import marked, percent, times
from workbench.studies.settings import counted
from workbench.theory.estimates import MeasuredSpeculative, Measurements
from workbench.theory.page import FAMILY, UNIT, FigureCard, Page, Slider, Values, diamond, family

# Table 4: T5-XXL (11B) with a smaller T5 as its draft model. For each task, the draft model,
# temperature, gamma, alpha, c, and the speed-up that the paper measured.
TABLE_4 = {
    "EnDe": (
        ("T5-small", 0, 7, 0.75, 0.02, 3.4), ("T5-base", 0, 7, 0.80, 0.04, 2.8),
        ("T5-large", 0, 7, 0.82, 0.11, 1.7), ("T5-small", 1, 7, 0.62, 0.02, 2.6),
        ("T5-base", 1, 5, 0.68, 0.04, 2.4), ("T5-large", 1, 3, 0.71, 0.11, 1.4),
    ),
    "CNNDM": (
        ("T5-small", 0, 5, 0.65, 0.02, 3.1), ("T5-base", 0, 5, 0.73, 0.04, 3.0),
        ("T5-large", 0, 3, 0.74, 0.11, 2.2), ("T5-small", 1, 5, 0.53, 0.02, 2.3),
        ("T5-base", 1, 3, 0.55, 0.04, 2.2), ("T5-large", 1, 3, 0.56, 0.11, 1.7),
    ),
}  # fmt: skip


GAMMAS = (1, 2, 4, 8, 16)
LONGEST = 32  # the largest gamma among which the best is searched


COSTS = (0.02, 0.05, 0.1, 0.2, 0.5)
HIGHEST = 5  # times as fast, of the opening picture, where its point is no higher


def gain(alpha: float, c: float) -> float:
    return theory.walltime_factor(alpha, theory.best_gamma(alpha, c, LONGEST), c)


def gain_figure(v: Values, m: Measurements) -> go.Figure:
    """The picture that the tab opens with: speed against how often a guess is kept."""
    run = m.speculative
    figure = family(
        canvas("how often a guess is kept", "times as fast"), UNIT, "cost", COSTS, v.c,
        lambda cost, a: gain(a, cost), (v.alpha, "{:.2f}×"), speed_of(run),
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


def tokens_figure(v: Values, m: Measurements) -> go.Figure:
    run = m.speculative
    return family(
        canvas("acceptance α", "tokens per round"), UNIT, "γ", GAMMAS, v.gamma,
        lambda g, a: theory.expected_tokens(a, g), (v.alpha, "{:.2f}"),
        (run.alpha, run.tokens, "{:.2f} measured") if run else None,
    )  # fmt: skip


def speedup_figure(v: Values, m: Measurements) -> go.Figure:
    figure = family(
        canvas("acceptance α", "speed-up"), UNIT, "γ", GAMMAS, v.gamma,
        lambda g, a: theory.walltime_factor(a, g, v.c), (v.alpha, "{:.2f}×"),
        speed_of(m.speculative),
    )  # fmt: skip
    level(figure, 1)
    return figure


def best_gamma_figure(v: Values, m: Measurements) -> go.Figure:
    def best(cost: float, acceptance: float) -> int:
        return theory.best_gamma(acceptance, cost, LONGEST)

    figure = family(
        canvas("acceptance α", "best γ"), UNIT, "c", (0.01, 0.02, 0.05, 0.1, 0.2), v.c, best,
        (v.alpha, "γ = {}"), shape="hv",
    )  # fmt: skip
    if (run := m.speculative) and run.c is not None:
        diamond(figure, run.alpha, best(run.c, run.alpha), "γ = {} for the run’s c")
    return figure


def operations_figure(v: Values, _: Measurements) -> go.Figure:
    return family(
        canvas("acceptance α", "operations"), UNIT, "γ", GAMMAS, v.gamma,
        lambda g, a: theory.operations_factor(a, g, v.c_hat), (v.alpha, "{:.2f}×"),
    )  # fmt: skip


def table_4_figure(_: Values, m: Measurements) -> go.Figure:
    """The paper's runs and the run here; the line is agreement of theory and clock."""
    figure = canvas("expected speed-up", "measured speed-up")
    figure.add_scatter(
        x=[0, 4], y=[0, 4], mode="lines", line={"color": GREY, "width": 1, "dash": "dot"},
        hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    looks = (("circle-open", FAMILY[0][0]), ("square-open", FAMILY[-1][0]))
    for (task, runs), (symbol, colour) in zip(TABLE_4.items(), looks, strict=True):
        figure.add_scatter(
            x=[theory.walltime_factor(alpha, gamma, c) for _, _, gamma, alpha, c, _ in runs],
            y=[speed for *_, speed in runs], name=f"{task}, T5-XXL", mode="markers",
            marker={"symbol": symbol, "size": 9, "color": colour, "line_width": 2},
            customdata=[
                f"{draft}, T = {temperature}, γ = {gamma}, α = {alpha}, c = {c}"
                for draft, temperature, gamma, alpha, c, _ in runs
            ],
            hovertemplate="%{customdata}<br>expected %{x:.2f}, measured %{y:.1f}<extra></extra>",
        )  # fmt: skip
    if (run := m.speculative) and run.expected_speedup is not None:
        diamond(figure, run.expected_speedup, run.speedup, "{:.2f}× here")
    return figure


def now(v: Values) -> str:
    best = theory.best_gamma(v.alpha, v.c, LONGEST)
    return (
        f"**{theory.expected_tokens(v.alpha, v.gamma):.2f}** tokens per round"
        f" · **{theory.walltime_factor(v.alpha, v.gamma, v.c):.2f}×** the speed"
        f" · **{theory.operations_factor(v.alpha, v.gamma, v.c_hat):.2f}×** the operations"
        f" · best γ here **{best}** ({theory.walltime_factor(v.alpha, best, v.c):.2f}×)"
    )


def of_run(m: Measurements) -> str:
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


# What the tab opens with, for a reader of none of the papers.
FIRST = Page(
    "How much faster?",
    "",
    (
        Slider("alpha", "how often a guess is kept", "0 never, 1 always", 0.0, 1.0, 0.8),
        Slider("c", "what a guess costs", "1 is a pass of the large model", 0.0, 1.0, 0.05),
    ),
    (FigureCard("", "", "", gain_figure),),
    gained,
    gain_of_run,
)

SPECULATIVE = Page(
    "Speculative",
    "Leviathan et al. 2023, §3",
    (
        Slider("alpha", "acceptance α", "chance that a draft token is kept", 0.0, 1.0, 0.8),
        Slider("c", "cost c", "time of a draft pass over a target pass", 0.0, 1.0, 0.05),
        Slider("gamma", "draft length γ", "tokens drafted per round", 1, 32, 5, 1),
        Slider("c_hat", "operations ĉ", "of the draft over the target, per token", 0.0, 1.0, 0.0),
    ),
    (
        FigureCard(
            "Speed-up",
            r"\frac{1-\alpha^{\gamma+1}}{(1-\alpha)(\gamma c+1)}",
            "Drafting costs time too; below 1 it does not pay. Assumes that verifying takes as "
            "long as one pass. Theorem 3.8, figure 4.",
            speedup_figure,
        ),
        FigureCard(
            "Tokens per round",
            r"E(\text{tokens}) = \frac{1-\alpha^{\gamma+1}}{1-\alpha}",
            "Each target pass yields the drafts kept and one token more. Equation 1, figure 2.",
            tokens_figure,
        ),
        FigureCard(
            "Best draft length",
            r"\gamma^* = \arg\max_\gamma \frac{1-\alpha^{\gamma+1}}{(1-\alpha)(\gamma c+1)}",
            "The better and the cheaper the draft model, the longer it should write. Searched up "
            "to 32. Figure 3.",
            best_gamma_figure,
        ),
        FigureCard(
            "Operations",
            r"\frac{(1-\alpha)(\gamma \hat c+\gamma+1)}{1-\alpha^{\gamma+1}}",
            "The price: refused drafts are wasted arithmetic. Theorem 3.11, figure 4.",
            operations_figure,
        ),
        FigureCard(
            "Expected against measured",
            r"\frac{1-\alpha^{\gamma+1}}{(1-\alpha)(\gamma c+1)} \;\text{ against the clock}",
            "The paper’s twelve runs, and the one chosen above. On the dotted line theory and "
            "clock agree. Table 4.",
            table_4_figure,
        ),
    ),
    now,
    of_run,
)
