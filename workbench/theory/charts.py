"""The closed forms of `decoders.theory` as figures: numbers in, Plotly figures out."""

from collections.abc import Sequence
from functools import cache
from itertools import cycle

import numpy as np
import plotly.graph_objects as go

from decoders import theory
from workbench.show.figure import GREY, canvas, level
from workbench.theory.curves import FAMILY, HERE, NOW, diamond, disc, family, upright
from workbench.theory.estimates import NOTHING, Measured, MeasuredDSBD, MeasuredMTAD, MeasuredSpeculative
from workbench.theory.papers import TABLE_4

LOOSE = 100  # a bound on a ratio of perplexities above which it says nothing

UNIT = [i / 100 for i in range(101)]
LENGTHS = [1 + i / 10 for i in range(161)]  # tokens per round
GAMMAS = (1, 2, 4, 8, 16)
THRESHOLDS = (0.9, 0.5, 0.2, 0.1, 0.01)
LONGEST = 32  # the best gamma is searched up to here
ROUNDS = 4000  # simulated batches per point
ACCURACIES = [i / 10 for i in range(1, 10)]  # the points

# ---- Speculative decoding


def tokens_figure(alpha: float, gamma: int, run: MeasuredSpeculative | None = None) -> go.Figure:
    """Figure 2 of the paper: expected tokens per round against alpha."""
    figure = canvas("acceptance α", "tokens per round")
    family(figure, UNIT, "γ", GAMMAS, gamma, lambda g, a: theory.expected_tokens(a, g))
    disc(figure, alpha, theory.expected_tokens(alpha, gamma), "{:.2f}")
    if run:
        diamond(figure, run.alpha, run.tokens, "{:.2f} measured")
    return figure


def speedup_figure(alpha: float, gamma: int, c: float, run: MeasuredSpeculative | None = None) -> go.Figure:
    """Figure 4, speed: the wall-time factor of theorem 3.8 against alpha."""
    figure = canvas("acceptance α", "speed-up")
    family(figure, UNIT, "γ", GAMMAS, gamma, lambda g, a: theory.walltime_factor(a, g, c))
    level(figure, 1)
    disc(figure, alpha, theory.walltime_factor(alpha, gamma, c), "{:.2f}×")
    if run and run.speedup is not None:
        diamond(figure, run.alpha, run.speedup, "{:.2f}× measured")
    return figure


def best_gamma_figure(alpha: float, c: float, run: MeasuredSpeculative | None = None) -> go.Figure:
    """Figure 3: the gamma of the largest wall-time factor against alpha."""
    figure = canvas("acceptance α", "best γ")
    costs = (0.01, 0.02, 0.05, 0.1, 0.2)
    family(figure, UNIT, "c", costs, c, lambda cost, a: theory.best_gamma(a, cost, LONGEST), shape="hv")
    disc(figure, alpha, theory.best_gamma(alpha, c, LONGEST), "γ = {}")
    if run and run.c is not None:
        diamond(figure, run.alpha, theory.best_gamma(run.alpha, run.c, LONGEST), "γ = {} for the run’s c")
    return figure


def operations_figure(alpha: float, gamma: int, c_hat: float) -> go.Figure:
    """Figure 4, operations: the factor of theorem 3.11 against alpha."""
    figure = canvas("acceptance α", "operations")
    family(figure, UNIT, "γ", GAMMAS, gamma, lambda g, a: theory.operations_factor(a, g, c_hat))
    disc(figure, alpha, theory.operations_factor(alpha, gamma, c_hat), "{:.2f}×")
    return figure


def table_4_figure(run: MeasuredSpeculative | None = None) -> go.Figure:
    """Table 4: what theorem 3.8 expects against what was measured, in the paper's runs and here; the line is agreement."""
    figure = canvas("expected speed-up", "measured speed-up")
    figure.add_scatter(
        x=[0, 4], y=[0, 4], mode="lines", line={"color": GREY, "width": 1, "dash": "dot"}, hoverinfo="skip", showlegend=False
    )  # fmt: skip
    for (task, symbol), (colour, _) in zip((("EnDe", "circle"), ("CNNDM", "square")), FAMILY[::4], strict=True):
        rows = [r for r in TABLE_4 if r.task == task]
        figure.add_scatter(
            x=[theory.walltime_factor(r.alpha, r.gamma, r.c) for r in rows], y=[r.empirical for r in rows],
            name=f"{task}, T5-XXL", mode="markers", marker={"symbol": f"{symbol}-open", "size": 9, "color": colour, "line_width": 2},
            customdata=[f"{r.draft}, T = {r.temperature}, γ = {r.gamma}, α = {r.alpha}, c = {r.c}" for r in rows],
            hovertemplate="%{customdata}<br>expected %{x:.2f}, measured %{y:.1f}<extra></extra>",
        )  # fmt: skip
    if run and run.speedup is not None and run.expected_speedup is not None:
        diamond(figure, run.expected_speedup, run.speedup, "{:.2f}× here")
    return figure


# ---- DSBD


def steps_figure(beta: float, threshold: float, gamma: int, run: MeasuredDSBD | None = None) -> go.Figure:
    """Theorem 3.2: layers per round against beta, flat beyond t."""
    figure = canvas("chance β that W<sub>min</sub> beams are accepted", "layers per round, at least")
    family(figure, UNIT, "γ", (1, 2, 3, 4, 8), gamma, lambda g, b: theory.dsbd_steps(b, g, threshold))
    upright(figure, threshold, "t")
    disc(figure, beta, theory.dsbd_steps(beta, gamma, threshold), "{:.2f}")
    if run:
        diamond(figure, run.layer_acceptance, run.steps, "{:.2f} measured")
    return figure


def width_figure(alphas: Sequence[float], threshold: float, minimum: int, run: MeasuredDSBD | None = None) -> go.Figure:
    """P(m, k), the chance that at least k are accepted, and the width chosen by t (eq. 2-7)."""
    law = theory.accepted_distribution(list(alphas))
    at_least = [sum(law[k:]) for k in range(len(law))]
    width = theory.dynamic_width(list(alphas), threshold, minimum)
    figure = canvas("draws of a layer that are accepted, k", "probability")
    ks = list(range(len(law)))
    figure.add_bar(
        x=ks, y=law, name="exactly k", marker_color=FAMILY[0][0], hovertemplate="P(%{x}) = %{y:.3f}<extra></extra>"
    )
    figure.add_scatter(
        x=ks, y=at_least, name="at least k", line={"color": FAMILY[-1][0]}, hovertemplate="P(≥ %{x}) = %{y:.3f}<extra></extra>"
    )  # fmt: skip
    level(figure, threshold, "t")
    disc(figure, width, at_least[width] if width in ks else 0.0, f"width {width}")
    if run:
        upright(figure, run.width, f"{run.width:.2f} measured, mean", HERE)
    figure.update_xaxes(dtick=1)
    figure.update_yaxes(range=[0, 1.2], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1])
    return figure


# ---- MTAD


def kept_figure(threshold: float, U: float, gamma: int, run: MeasuredMTAD | None = None) -> go.Figure:
    """Theorem 3.6 in whole tokens: what the rule guarantees per round, its own token included, against U."""
    figure = canvas("U = largest |ln p − ln q|, nats", "tokens per round, at least")
    span = [0.02 * i for i in range(1, 251)]
    family(figure, span, "τ", THRESHOLDS, threshold, lambda t, u: 1 + theory.mtad_kept_length(t, u, gamma), shape="hv")
    disc(figure, U, 1 + theory.mtad_kept_length(threshold, U, gamma), "{}")
    if run and run.U is not None:
        diamond(figure, run.U, run.gamma_bar, f"{run.gamma_bar:.2f} measured, U ≥ {run.U:.2f}")
    figure.update_yaxes(rangemode="tozero")
    return figure


def ratio_figure(
    threshold: float, gamma_bar: float, H: float, U: float, epsilon: float, run: MeasuredMTAD | None = None
) -> go.Figure:
    """Theorem 3.5: the bound on MTAD's perplexity over that of exact joint decoding, against the tokens per round."""
    figure = canvas("tokens per round γ̄", "perplexity ratio, at most")
    family(figure, LENGTHS, "τ", THRESHOLDS, threshold, lambda t, g: theory.mtad_ratio_bound(t, g, H, U, epsilon))
    disc(figure, gamma_bar, theory.mtad_ratio_bound(threshold, gamma_bar, H, U, epsilon), "{:.3g}")
    if run and run.U is not None:
        bound = theory.mtad_ratio_bound(run.threshold, run.gamma_bar, run.H, run.U)
        says = "bound {:,.0f}× (too loose to say anything)" if bound > LOOSE else "bound {:.3g}× by the run’s U, H, γ̄"
        diamond(figure, run.gamma_bar, bound, says)
    figure.update_yaxes(type="log")
    return figure


def perplexity_figure(gamma_bar: float, H_pq: float, log_q: float, epsilon: float) -> go.Figure:
    """Lemma 3.4: the bound on the output's perplexity under the draft model, where L_q(n) = n log_q."""
    figure = canvas("tokens per round γ̄", "perplexity under q, at most")

    def bound(e: float, g: float) -> float:
        return theory.mtad_perplexity_bound(g, H_pq, (g - 1) * log_q, e)

    family(figure, LENGTHS, "ε", (0.0, -0.1, -0.25, -0.5, -1.0), epsilon, bound)
    disc(figure, gamma_bar, bound(epsilon, gamma_bar), "{:.2f}")
    return figure


# ---- EMS-SD

PADDING = {"longest": "longest acceptance τ<sub>max</sub>", "pads": "pads per request δ̄", "ratio": "padding ratio r̄"}


def padding_figure(part: str, p: float, batch: int, cap: int, found: Measured = NOTHING) -> go.Figure:
    """Figure 6: one part of `theory.Padding` against p; lines are exact, crosses the paper's simulation for this batch size."""

    def exact(batch: float, p: float) -> float:
        return getattr(theory.expected_padding(p, int(batch), cap), part)

    figure = canvas("next-token accuracy p", PADDING[part])
    family(figure, UNIT, "b", (2, 4, 8, 16, 32), batch, exact)
    figure.add_scatter(
        x=ACCURACIES, y=[getattr(padding, part) for padding in _simulated(batch, cap)],
        name="simulated", mode="markers", marker={"symbol": "x-thin-open", "size": 8, "color": NOW},
        hovertemplate=f"%{{x:.2f}}: %{{y:.3f}}<extra>{ROUNDS} simulated rounds</extra>",
    )  # fmt: skip
    disc(figure, p, exact(batch, p), "{:.2f}")
    for each in found.batches:
        if (measured := each.padding(batch)) is not None:
            diamond(figure, each.p, getattr(measured, part), f"{{:.2f}} measured, {each.decoder}")
    if run := found.speculative:
        diamond(figure, run.alpha, exact(batch, run.alpha), "{:.2f} for the run’s α")
    return figure


@cache
def _simulated(batch: int, cap: int) -> list[theory.Padding]:
    draw = np.random.default_rng(0)
    return [theory.simulated_padding(p, batch, cap, ROUNDS, draw) for p in ACCURACIES]


def longest_figure(p: float, batch: int, cap: int, found: Measured = NOTHING) -> go.Figure:
    """P(tau_max = k), the rest of the mass on the cap; and the share of rounds in which the run's batches of this size had it."""
    figure = canvas("longest acceptance of the batch, k", "probability")
    names = [*(str(k) for k in range(1, cap)), f"≥ {cap}"]
    figure.add_bar(
        x=names, y=theory.longest_acceptance(p, batch, cap), name="formula", marker_color=NOW,
        hovertemplate="k = %{x}: %{y:.3f}<extra></extra>",
    )  # fmt: skip
    for run, pattern in zip(found.batches, cycle(("", "/", "x", "."))):
        if (shares := run.longest(batch, cap)) is not None:
            figure.add_bar(
                x=names, y=shares, name=f"measured, {run.decoder}", marker={"color": HERE, "pattern_shape": pattern},
                hovertemplate="k = %{x}: %{y:.3f} of the rounds<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(type="category")
    return figure
