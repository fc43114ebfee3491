"""The pages of MTAD, DSBD and of the padding of batches (EMS-SD).

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722; DSBD, arXiv 2409.16560) and Ni et al. 2024 (EMS-SD,
    arXiv 2405.07542, appendix B): the theorems, lemmas and equations named below.
"""

from itertools import cycle
from statistics import fmean, stdev

import plotly.graph_objects as go

from decoders import theory
from workbench.show.plots import canvas, level
from workbench.show.quantities import significant
from workbench.theory.estimates import MeasuredBatch, Measurements
from workbench.theory.page import (
    FAMILY,
    HERE,
    NOW,
    UNIT,
    FigureCard,
    Page,
    Slider,
    Values,
    diamond,
    disc,
    family,
    upright,
)

# ---- Multi-token assisted decoding


LOOSE = 100  # a bound on a ratio of perplexities that is higher than this says nothing
HIGHEST = 1e6  # and above this it would leave the curves no room
LENGTHS = [1 + i / 10 for i in range(161)]  # tokens per round
THRESHOLDS = (0.9, 0.5, 0.2, 0.1, 0.01)


def kept_figure(v: Values, m: Measurements) -> go.Figure:
    """Theorem 3.6 in whole tokens, the round's own included, against U."""
    figure = family(
        canvas("U = largest |ln p − ln q|, nats", "tokens per round, at least"),
        [0.02 * i for i in range(1, 251)], "τ", THRESHOLDS, v.tau,
        lambda t, u: 1 + theory.mtad_kept_length(t, u, v.gamma), (v.U, "{}"), shape="hv",
    )  # fmt: skip
    if (run := m.mtad) and run.U is not None:
        diamond(figure, run.U, run.gamma_bar, f"{{:.2f}} measured, U ≥ {run.U:.2f}")
    return figure.update_yaxes(rangemode="tozero")


def ratio_figure(v: Values, m: Measurements) -> go.Figure:
    """Theorem 3.5 against the tokens per round."""
    figure = family(
        canvas("tokens per round γ̄", "perplexity ratio, at most"),
        LENGTHS, "τ", THRESHOLDS, v.tau,
        lambda t, g: theory.mtad_ratio_bound(t, g, v.H, v.U, v.epsilon), (v.gamma_bar, "{:.3g}"),
    )  # fmt: skip
    if (run := m.mtad) and run.U is not None:
        bound = theory.mtad_ratio_bound(run.threshold, run.gamma_bar, run.H, run.U)
        says = (
            "bound {:,.0f}× (too loose to say anything)"
            if bound > LOOSE
            else "bound {:.3g}× by the run’s U, H, γ̄"
        )
        if bound < HIGHEST:
            diamond(figure, run.gamma_bar, bound, says)
    return figure.update_yaxes(type="log")


def perplexity_figure(v: Values, _: Measurements) -> go.Figure:
    """Lemma 3.4; L_q(n) is taken to be n log_q."""
    return family(
        canvas("tokens per round γ̄", "perplexity under q, at most"),
        LENGTHS, "ε", (0.0, -0.1, -0.25, -0.5, -1.0), v.epsilon,
        lambda e, g: theory.mtad_perplexity_bound(g, v.H_pq, (g - 1) * v.log_q, e),
        (v.gamma_bar, "{:.2f}"),
    )  # fmt: skip


def mtad_now(v: Values) -> str:
    ratio = theory.mtad_ratio_bound(v.tau, v.gamma_bar, v.H, v.U, v.epsilon)
    under_q = theory.mtad_perplexity_bound(
        v.gamma_bar, v.H_pq, (v.gamma_bar - 1) * v.log_q, v.epsilon
    )
    return (
        f"At least **{1 + theory.mtad_kept_length(v.tau, v.U, v.gamma)}** tokens per round"
        f" · perplexity at most **{significant(ratio)}×** that of exact joint decoding"
        f" · under q at most **{under_q:.2f}**"
    )


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
            kept_figure,
        ),
        FigureCard(
            "Against exact joint decoding",
            r"\frac{PPL}{PPL^*} \le \tau^{-1/\bar\gamma}"
            r" \exp\frac{(1-\epsilon\bar\gamma)H(p)+(1-\epsilon+\bar\gamma)U}{\bar\gamma}",
            "The most by which the text of exact joint decoding could be likelier, in the limit of "
            "long outputs. Theorem 3.5.",
            ratio_figure,
        ),
        FigureCard(
            "Perplexity under the draft",
            r"PPL_q \le \exp\Bigl(\frac{H(p,q)}{\bar\gamma}"
            r"-\frac{1-\epsilon}{\bar\gamma}\,L_q(\gamma-1)\Bigr)",
            "Drafts are chosen to be likely under q; only the last token of a round is not. L_q is "
            "drawn as (γ̄ − 1) times the best log q of a token. Lemma 3.4.",
            perplexity_figure,
        ),
    ),
    mtad_now,
    mtad_of_run,
)


# ---- Dynamic-width speculative beam decoding


def steps_figure(v: Values, m: Measurements) -> go.Figure:
    """Theorem 3.2: layers per round against beta, flat beyond t."""
    run = m.dsbd
    figure = family(
        canvas("chance β that W<sub>min</sub> beams are accepted", "layers per round, at least"),
        UNIT, "γ", (1, 2, 3, 4, 8), v.gamma, lambda g, b: theory.dsbd_steps(b, g, v.t),
        (v.beta, "{:.2f}"),
        (run.layer_acceptance, run.steps, "{:.2f} measured") if run else None,
    )  # fmt: skip
    upright(figure, v.t, "t")
    return figure


def width_figure(v: Values, m: Measurements) -> go.Figure:
    """P(m, k), the chance that at least k are accepted, and the width by t (equations 2-7)."""
    law = theory.accepted_distribution(_alphas(v))
    at_least = [sum(law[k:]) for k in range(len(law))]
    width = theory.dynamic_width(_alphas(v), v.t, v.minimum)
    figure = canvas("draws of a layer that are accepted, k", "probability")
    ks = list(range(len(law)))
    figure.add_bar(
        x=ks, y=law, name="exactly k", marker_color=FAMILY[0][0],
        hovertemplate="P(%{x}) = %{y:.3f}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=ks, y=at_least, name="at least k", line={"color": FAMILY[-1][0]},
        hovertemplate="P(≥ %{x}) = %{y:.3f}<extra></extra>",
    )  # fmt: skip
    level(figure, v.t, "t")
    disc(figure, width, at_least[width] if width in ks else 0.0, f"width {width}")
    if run := m.dsbd:
        upright(figure, run.width, f"{run.width:.2f} measured, mean", HERE)
    return figure.update_xaxes(dtick=1).update_yaxes(
        range=[0, 1.2], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1]
    )


def _alphas(v: Values) -> list[float]:
    return [v.first * v.falls**j for j in range(v.draws)]


def dsbd_now(v: Values) -> str:
    return (
        f"At least **{theory.dsbd_steps(v.beta, v.gamma, v.t):.2f}** layers per round ·"
        f" width **{theory.dynamic_width(_alphas(v), v.t, v.minimum)}** for"
        f" α = {', '.join(f'{a:.2f}' for a in _alphas(v))}"
    )


def dsbd_of_run(m: Measurements) -> str:
    run = m.dsbd
    if run is None:
        return "This run has no rounds of DSBD."
    return (
        f"DSBD passed {run.passed} of the {run.verified} layers it verified"
        f" ({run.layer_acceptance:.2f}, an estimate of the mean of min(t, β)), gained"
        f" {run.steps:.2f} layers per round with γ = {run.gamma:.2f} on average, and kept"
        f" {run.width:.2f} beams per layer. The theorem is a lower bound for a constant β, or for"
        " the minimum of β: compared with its mean, a run may lie on either side."
    )


DSBD = Page(
    "DSBD",
    "Qin et al. 2024, Dynamic-width speculative beam decoding, §3.2",
    (
        Slider("beta", "yield β", "chance that a layer’s draws yield W_min beams", 0.0, 1.0, 0.8),
        Slider("t", "threshold t", "desired chance that a layer passes", 0.0, 1.0, 0.9),
        Slider("gamma", "draft length γ", "layers drafted per round", 1, 16, 2, 1),
        Slider("draws", "draft beams W_S", "draws of the draft model per layer", 1, 16, 6, 1),
        Slider(
            "first", "first acceptance α₁", "chance that the first draw is accepted", 0.0, 1.0, 0.75
        ),
        Slider("falls", "fall", "each refusal multiplies the chance by this", 0.0, 1.0, 0.7),
        Slider("minimum", "least beams W_min", "fewest beams of a layer", 1, 16, 1, 1),
    ),
    (
        FigureCard(
            "Layers per round",
            r"E(\text{layers}) \ge \frac{1-\min(t,\beta)^{\gamma+1}}{1-\min(t,\beta)}",
            "The width is chosen so that a layer passes with a chance of about t, if β allows it. "
            "A lower bound. Theorem 3.2.",
            steps_figure,
        ),
        FigureCard(
            "Width",
            r"\begin{gathered} P(m,k)=\sum_{i=1}^{m} \alpha_i \prod_{j<i}(1-\alpha_j)\, P(m-i,k-1)"
            r" \\ W_L=\max\bigl(W_{min},\,\max\{K: P(\ge K)\ge t\}\bigr) \end{gathered}",
            "The most beams that are accepted with a chance of at least t; after an acceptance the "
            "α start again with the first. Equations 2-7.",
            width_figure,
        ),
    ),
    dsbd_now,
    dsbd_of_run,
)


# ---- The padding of batches


def padding_figure(v: Values, m: Measurements, part: str, title: str) -> go.Figure:
    """Figure 6: one part of `theory.Padding` against p."""

    def exact(batch: float, p: float) -> float:
        return getattr(theory.expected_padding(p, int(batch), v.cap), part)

    run = m.speculative
    figure = family(
        canvas("next-token accuracy p", title), UNIT, "b", (2, 4, 8, 16, 32), v.batch, exact,
        (v.p, "{:.2f}"),
        (run.alpha, exact(v.batch, run.alpha), "{:.2f} for the run’s α") if run else None,
    )  # fmt: skip
    for each in m.batches:
        if (measured := each.padding(v.batch)) is not None:
            diamond(figure, each.p, getattr(measured, part), f"{{:.2f}} measured, {each.decoder}")
    return figure


def longest_figure(v: Values, m: Measurements) -> go.Figure:
    """P(tau_max = k), with the rest of the mass on the cap.

    Measured bars are the shares of rounds of the run's batches of this size.
    """
    figure = canvas("longest acceptance of the batch, k", "probability")
    names = [*(str(k) for k in range(1, v.cap)), f"≥ {v.cap}"]
    figure.add_bar(
        x=names, y=theory.longest_acceptance(v.p, v.batch, v.cap), name="formula", marker_color=NOW,
        hovertemplate="k = %{x}: %{y:.3f}<extra></extra>",
    )  # fmt: skip
    for run, pattern in zip(m.batches, cycle(("", "/", "x", "."))):
        if (shares := run.longest(v.batch, v.cap)) is not None:
            figure.add_bar(
                x=names, y=shares, name=f"measured, {run.decoder}",
                marker={"color": HERE, "pattern_shape": pattern},
                hovertemplate="k = %{x}: %{y:.3f} of the rounds<extra></extra>",
            )  # fmt: skip
    return figure.update_xaxes(type="category")


def ems_sd_now(v: Values) -> str:
    padding = theory.expected_padding(v.p, v.batch, v.cap)
    return (
        f"The longest of {v.batch} gains **{padding.longest:.2f}** tokens per round · a request is"
        f" padded by **{padding.pads:.2f}** on average · **{padding.ratio:.0%}** of a padded batch"
        " is padding, and none of a packed one"
    )


def ems_sd_of_run(m: Measurements) -> str:
    if m.batches:
        return "\n\n".join(map(of_batch, m.batches))
    if m.speculative is None:
        return "This run has neither batches nor rounds of speculative decoding."
    return (
        f"Speculative decoding kept α = {m.speculative.alpha:.2f} of the draft tokens that it"
        " tested: the diamonds show the formula’s cost of padding for a batch of such requests. A"
        " run of the Batch tab measures padding itself."
    )


def of_batch(run: MeasuredBatch) -> str:
    return (
        f"{run.decoder} gained {fmean(run.means):.2f} tokens per round, mean of {len(run.means)}"
        f" samples whose means differ by {stdev(run.means):.2f} (standard deviation); all"
        f" acceptance lengths together give p = {run.p:.2f}, and the longest was {run.cap}. The"
        " formula takes all requests to be alike: it leaves out that some stay slow and others stay"
        " fast."
    )


EMS_SD = Page(
    "EMS-SD",
    "Ni et al. 2024, appendix B",
    (
        Slider("p", "accuracy p", "chance that the next draft token is right", 0.0, 1.0, 0.7),
        Slider("batch", "batch size b", "requests decoded at once", 1, 32, 8, 1),
        Slider("cap", "cap", "longest acceptance possible", 1, 16, 8, 1),
    ),
    (
        FigureCard(
            "Longest acceptance",
            r"\tau_{max} = \max(\tau_0,\dots,\tau_{b-1})",
            "The request that gains most sets the length to which all others are padded. Figure 6.",
            lambda v, m: padding_figure(v, m, "longest", "longest acceptance τ<sub>max</sub>"),
        ),
        FigureCard(
            "Its distribution",
            r"P(\tau_{max}=k) = (1-p^k)^b-(1-p^{k-1})^b",
            "In a large batch some request nearly always gains all. The last bar has the rest of "
            "the mass. Equation 11.",
            longest_figure,
        ),
        FigureCard(
            "Pads",
            r"\bar\delta = \tau_{max}-\frac1b\sum_i\tau_i",
            "Tokens computed and cached for nothing, per request and round. Figure 6.",
            lambda v, m: padding_figure(v, m, "pads", "pads per request δ̄"),
        ),
        FigureCard(
            "Padding ratio",
            r"\bar r = \bar\delta\,/\,\tau_{max}",
            "The share of a padded batch that is padding. Batches here can be packed without any. "
            "Figure 6.",
            lambda v, m: padding_figure(v, m, "ratio", "padding ratio r̄"),
        ),
    ),
    ems_sd_now,
    ems_sd_of_run,
)
