"""The page of multi-token assisted decoding.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722): the theorems and the lemma named below.
"""

import plotly.graph_objects as go

from decoders import theory
from workbench.show.plots import canvas
from workbench.show.quantities import significant
from workbench.theory.estimates import MeasuredMTAD, Measurements
from workbench.theory.page import FigureCard, Page, Slider, Values, diamond, family

LOOSE = 100  # a bound on a ratio of perplexities that is higher than this says nothing
HIGHEST = 1e6  # and above this it would leave the curves no room
LENGTHS = [1 + i / 10 for i in range(161)]  # tokens per round
THRESHOLDS = (0.9, 0.5, 0.2, 0.1, 0.01)


def kept_figure(
    threshold: float, U: float, gamma: int, run: MeasuredMTAD | None = None
) -> go.Figure:
    """Theorem 3.6 in whole tokens: the least tokens per round, against U.

    The round's own token is included.
    """
    figure = family(
        canvas("U = largest |ln p − ln q|, nats", "tokens per round, at least"),
        [0.02 * i for i in range(1, 251)], "τ", THRESHOLDS, threshold,
        lambda t, u: 1 + theory.mtad_kept_length(t, u, gamma), (U, "{}"), shape="hv",
    )  # fmt: skip
    if run and run.U is not None:
        diamond(figure, run.U, run.gamma_bar, f"{run.gamma_bar:.2f} measured, U ≥ {run.U:.2f}")
    figure.update_yaxes(rangemode="tozero")
    return figure


def ratio_figure(
    threshold: float,
    gamma_bar: float,
    H: float,
    U: float,
    epsilon: float,
    run: MeasuredMTAD | None = None,
) -> go.Figure:
    """Theorem 3.5: the bound on MTAD's perplexity over that of exact joint decoding.

    It is drawn against the tokens per round.
    """
    figure = family(
        canvas("tokens per round γ̄", "perplexity ratio, at most"),
        LENGTHS, "τ", THRESHOLDS, threshold,
        lambda t, g: theory.mtad_ratio_bound(t, g, H, U, epsilon), (gamma_bar, "{:.3g}"),
    )  # fmt: skip
    if run and run.U is not None:
        bound = theory.mtad_ratio_bound(run.threshold, run.gamma_bar, run.H, run.U)
        says = (
            "bound {:,.0f}× (too loose to say anything)"
            if bound > LOOSE
            else "bound {:.3g}× by the run’s U, H, γ̄"
        )
        if bound < HIGHEST:
            diamond(figure, run.gamma_bar, bound, says)
    figure.update_yaxes(type="log")
    return figure


def perplexity_figure(gamma_bar: float, H_pq: float, log_q: float, epsilon: float) -> go.Figure:
    """Lemma 3.4: the bound on the output's perplexity under the draft model.

    L_q(n) is taken to be n log_q.
    """

    def bound(e: float, g: float) -> float:
        return theory.mtad_perplexity_bound(g, H_pq, (g - 1) * log_q, e)

    return family(
        canvas("tokens per round γ̄", "perplexity under q, at most"),
        LENGTHS, "ε", (0.0, -0.1, -0.25, -0.5, -1.0), epsilon, bound, (gamma_bar, "{:.2f}"),
    )  # fmt: skip


def now(v: Values) -> str:
    ratio = theory.mtad_ratio_bound(v.tau, v.gamma_bar, v.H, v.U, v.epsilon)
    under_q = theory.mtad_perplexity_bound(
        v.gamma_bar, v.H_pq, (v.gamma_bar - 1) * v.log_q, v.epsilon
    )
    return (
        f"At least **{1 + theory.mtad_kept_length(v.tau, v.U, v.gamma)}** tokens per round"
        f" · perplexity at most **{significant(ratio)}×** that of exact joint decoding"
        f" · under q at most **{under_q:.2f}**"
    )


def of_run(m: Measurements) -> str:
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
            " theorems promise nothing."
        )
    return (
        f"MTAD gained γ̄ = {run.gamma_bar:.2f} tokens per round with γ = {run.draft_length},"
        f" τ = {run.threshold:g}. {U} H(p) is at least {run.H:.2f} nats, the mean over {run.places}"
        " places of the least entropy that the likeliest tokens kept in the trace allow (plain"
        " target, unwarped). H(p, q) and the best log q were not measured: the trace holds q only"
        " of drafted tokens."
    )


MTAD = Page(
    "MTAD",
    "Qin et al. 2024, Multi-token assisted decoding, §3.2",
    (
        Slider("tau", "threshold τ", "least joint p/q of a kept prefix", 0.01, 0.99, 0.1),
        Slider("U", "distance U", "largest |ln p − ln q|, nats", 0.02, 5.0, 0.5),
        Slider("gamma", "draft length γ", "tokens drafted per round", 1, 16, 8, 1),
        Slider("gamma_bar", "gain γ̄", "mean tokens per round", 1.0, 17.0, 3.0, 0.1),
        Slider("H", "entropy H(p)", "of the target, nats per token", 0.0, 6.0, 1.5),
        Slider("epsilon", "beam error ε", "0 if the draft’s beams find the best", -1.0, 0.0, 0.0),
        Slider("H_pq", "cross entropy H(p, q)", "nats per token", 0.0, 8.0, 2.0),
        Slider("log_q", "best log q", "of a draft token, nats", -4.0, 0.0, -0.5),
    ),
    (
        FigureCard(
            "Tokens per round",
            r"\bar\gamma \ge \frac{|\ln\tau|}{U}",
            "Models that never differ by more than U cannot fail the threshold at once. The steps "
            "are the whole tokens that the rule promises: min(γ, ⌈|ln τ|/U⌉ − 1) and one more. "
            "Theorem 3.6.",
            lambda v, m: kept_figure(v.tau, v.U, v.gamma, m.mtad),
        ),
        FigureCard(
            "Against exact joint decoding",
            r"\frac{PPL}{PPL^*} \le \tau^{-1/\bar\gamma}"
            r" \exp\frac{(1-\epsilon\bar\gamma)H(p)+(1-\epsilon+\bar\gamma)U}{\bar\gamma}",
            "The most by which the text of exact joint decoding could be likelier, in the limit of "
            "long outputs. Theorem 3.5.",
            lambda v, m: ratio_figure(v.tau, v.gamma_bar, v.H, v.U, v.epsilon, m.mtad),
        ),
        FigureCard(
            "Perplexity under the draft",
            r"PPL_q \le \exp\Bigl(\frac{H(p,q)}{\bar\gamma}"
            r"-\frac{1-\epsilon}{\bar\gamma}\,L_q(\gamma-1)\Bigr)",
            "Drafts are chosen to be likely under q; only the last token of a round is not. L_q is "
            "drawn as (γ̄ − 1) times the best log q of a token. Lemma 3.4.",
            lambda v, m: perplexity_figure(v.gamma_bar, v.H_pq, v.log_q, v.epsilon),
        ),
    ),
    now,
    of_run,
)
