"""Multi-token assisted decoding.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722), section 3.2.
"""

from decoders import theory
from workbench.show.quantities import significant
from workbench.theory.charts import mtad as charts
from workbench.theory.estimates import Measured
from workbench.theory.pages.page import Card, Page, Slider, Values


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


def found(m: Measured) -> str:
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
        Card(
            "Tokens per round",
            r"\bar\gamma \ge \frac{|\ln\tau|}{U}",
            "Models that never differ by more than U cannot fail the threshold at once. The steps "
            "are the whole tokens that the rule promises: min(γ, ⌈|ln τ|/U⌉ − 1) and one more. "
            "Theorem 3.6.",
            lambda v, m: charts.kept_figure(v.tau, v.U, v.gamma, m.mtad),
        ),
        Card(
            "Against exact joint decoding",
            r"\frac{PPL}{PPL^*} \le \tau^{-1/\bar\gamma}"
            r" \exp\frac{(1-\epsilon\bar\gamma)H(p)+(1-\epsilon+\bar\gamma)U}{\bar\gamma}",
            "The most by which the text of exact joint decoding could be likelier, in the limit of "
            "long outputs. Theorem 3.5.",
            lambda v, m: charts.ratio_figure(v.tau, v.gamma_bar, v.H, v.U, v.epsilon, m.mtad),
        ),
        Card(
            "Perplexity under the draft",
            r"PPL_q \le \exp\Bigl(\frac{H(p,q)}{\bar\gamma}"
            r"-\frac{1-\epsilon}{\bar\gamma}\,L_q(\gamma-1)\Bigr)",
            "Drafts are chosen to be likely under q; only the last token of a round is not. L_q is "
            "drawn as (γ̄ − 1) times the best log q of a token. Lemma 3.4.",
            lambda v, m: charts.perplexity_figure(v.gamma_bar, v.H_pq, v.log_q, v.epsilon),
        ),
    ),
    now,
    found,
)
