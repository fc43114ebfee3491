"""The figures of multi-token assisted decoding.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722): the theorems and the lemma named below.
"""

import plotly.graph_objects as go

from decoders import theory
from workbench.show.figure import canvas
from workbench.theory.curves import diamond, disc, family
from workbench.theory.estimates import MeasuredMTAD

LOOSE = 100  # a bound on a ratio of perplexities that is higher than this says nothing
LENGTHS = [1 + i / 10 for i in range(161)]  # tokens per round
THRESHOLDS = (0.9, 0.5, 0.2, 0.1, 0.01)


def kept_figure(
    threshold: float, U: float, gamma: int, run: MeasuredMTAD | None = None
) -> go.Figure:
    """Theorem 3.6 in whole tokens: the least tokens per round, against U.

    The round's own token is included.
    """
    figure = canvas("U = largest |ln p − ln q|, nats", "tokens per round, at least")
    span = [0.02 * i for i in range(1, 251)]
    family(
        figure,
        span,
        "τ",
        THRESHOLDS,
        threshold,
        lambda t, u: 1 + theory.mtad_kept_length(t, u, gamma),
        shape="hv",
    )
    disc(figure, U, 1 + theory.mtad_kept_length(threshold, U, gamma), "{}")
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
    figure = canvas("tokens per round γ̄", "perplexity ratio, at most")
    family(
        figure,
        LENGTHS,
        "τ",
        THRESHOLDS,
        threshold,
        lambda t, g: theory.mtad_ratio_bound(t, g, H, U, epsilon),
    )
    disc(figure, gamma_bar, theory.mtad_ratio_bound(threshold, gamma_bar, H, U, epsilon), "{:.3g}")
    if run and run.U is not None:
        bound = theory.mtad_ratio_bound(run.threshold, run.gamma_bar, run.H, run.U)
        says = (
            "bound {:,.0f}× (too loose to say anything)"
            if bound > LOOSE
            else "bound {:.3g}× by the run’s U, H, γ̄"
        )
        diamond(figure, run.gamma_bar, bound, says)
    figure.update_yaxes(type="log")
    return figure


def perplexity_figure(gamma_bar: float, H_pq: float, log_q: float, epsilon: float) -> go.Figure:
    """Lemma 3.4: the bound on the output's perplexity under the draft model.

    L_q(n) is taken to be n log_q.
    """
    figure = canvas("tokens per round γ̄", "perplexity under q, at most")

    def bound(e: float, g: float) -> float:
        return theory.mtad_perplexity_bound(g, H_pq, (g - 1) * log_q, e)

    family(figure, LENGTHS, "ε", (0.0, -0.1, -0.25, -0.5, -1.0), epsilon, bound)
    disc(figure, gamma_bar, bound(epsilon, gamma_bar), "{:.2f}")
    return figure
