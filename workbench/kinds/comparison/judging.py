"""What other rules would keep of a round's draft: the fold of a round in the picture."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import gradio as gr

from decoders import InputError, Judgement, ModelPair, Warping, judge, read
from decoders.errors import quoted
from decoders.trace import DRAFTED
from workbench.kinds import branch
from workbench.kinds.comparison.results import ComparisonResults
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.runner import sentence
from workbench.page.widgets import DEVICE, sent
from workbench.runs.record import Run
from workbench.show.laws import grouped
from workbench.show.looks import visible
from workbench.studies.settings import Settings

CHOSEN = (
    "This draft was chosen, not drawn: here the rules that compare p with q keep no "
    "distribution, while Match does."
)


def answer_judging(host: Host, results: ComparisonResults, pair: gr.State) -> None:
    def judge_round(choice: PairChoice, event: gr.EventData) -> dict[str, Any]:
        question = sent(event, "ask", "run", "decoder", "round")
        answer = {"ask": question.get("ask")}
        try:
            if not all(isinstance(question.get(name), str) for name in ("run", "decoder")):
                raise InputError("Name a round by its run, its decoder and its number.")
            place = question["decoder"], question.get("round", 0)
            run = host.store.get(question["run"])
            return {**answer, **host.device.ask(choice, of_round, run, *place)}
        except Exception as error:
            return {**answer, "error": sentence(error)}

    results.strip.expand(judge_round, pair, results.answer, show_progress="hidden", **DEVICE)


def of_round(pair: ModelPair, run: Run, decoder: str, number: int) -> dict[str, Any]:
    """Judge the draft of a round, each place with the random number that the round drew there.

    Returns:
        tokens: the draft's tokens as texts
        rows: see `workbench.show.laws`; the decoder's own rule comes first
        note: "" or a sentence about the draft

    Raises:
        InputError: for a round whose draft cannot be judged again
    """
    rounds = branch.sample(run, decoder, 0).rounds
    if type(number) is not int or not 0 <= number < len(rounds):
        raise InputError(f"This text has rounds 0 to {len(rounds) - 1}, not {quoted(number)}.")
    drafted = [t for t in rounds[number].trials if t.fate in DRAFTED]
    chain = all(t.parent == before.node for before, t in pairwise(drafted))
    if not drafted or not chain or rounds[number].provisional:
        raise InputError("Only a round whose draft is one chain of tokens can be judged again.")
    settings = Settings.from_json({**run.settings, "decoders": [decoder]})
    (method,) = settings.methods
    own, certain, note = _source(method)
    at = sum(len(each.nodes) for each in rounds[:number])
    ids, _ = branch.prefix(pair, run, decoder, at)
    places = read(
        pair, ids, [t.token for t in drafted], penalties=settings.penalties, drafted=True,
        draft="head" if method.uses_head else True, **asdict(method.warping(Warping.of(settings))),
    )  # fmt: skip
    raw, q = places.log_p.exp(), None if certain else places.q
    uniforms = [t.u for t in drafted]

    def judged(rules: Sequence[Any]) -> list[Judgement]:
        return judge(
            places.p, q, places.tokens, rules, raw=raw, seed=settings.seed, uniforms=uniforms
        )

    others = judged(())
    mine = judged([own]) if own is not None else []
    names = {each.rule.name for each in mine}
    rest = [each for each in others if each.rule.name not in names]
    # Match draws instead of testing, and here would draw other tokens than it did.
    mine = [each for each in mine if each.rule.name != "match"]
    headed = method.uses_head or (method.uses_draft and bool(pair.packed["draft"].reads))
    texts = [t.text for t in drafted]
    words = [visible(text.strip(" ") or "␣") for text in texts]
    return {
        "tokens": texts,
        "rows": grouped([*mine, *rest], words, len(mine), headed),
        "note": note,
    }


def _source(method: Any) -> tuple[Any, bool, str]:
    """A decoder's own rule, if it is known; whether its drafts are certain; a note about them."""
    if method.name == "mtad":
        own = f"mtad(threshold={method.threshold})"
        copied = method.draft == "lookup"
        return own if method.ratio == "warped" else None, copied, "" if copied else CHOSEN
    if not hasattr(method, "parts"):
        raise InputError(f"{method.title} has no rule that judges a chain of draft tokens.")
    source, rule = method.parts
    if source.kind.name == "COUNTED":
        raise InputError(
            f"The drafts of {method.title} come from counts, which a run does not keep; run a "
            "decoder with a draft model, or with copies."
        )
    random = source.uses_draft or source.uses_head
    return rule, not random, CHOSEN if source.kind.name == "CHOSEN" else ""
