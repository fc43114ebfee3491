"""A round's draft, or one that a reader types, judged by every rule that fits."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from typing import Any

from rich.console import Console

from decoders import InputError, Judgement, ModelPair, Warping, judge, read
from decoders.errors import quoted
from decoders.inputs import text
from decoders.judge import check_length
from decoders.settings import check, nearest
from decoders.trace import DRAFTED
from workbench.kinds import branch
from workbench.kinds.divergence import pasted
from workbench.measuring.transcript import Pieces
from workbench.runs.record import Run
from workbench.show.laws import grouped
from workbench.show.looks import visible
from workbench.show.tables import Table
from workbench.studies.settings import Settings, parse, shared
from workbench.terminal import flags, show

SAMPLING = tuple(field.name for field in fields(Warping))
CHOSEN = (
    "This draft was chosen, not drawn: here the rules that compare p with q keep no "
    "distribution, while Match does."
)


def of_text(
    pair: ModelPair,
    prompt: str,
    draft: str,
    rules: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Judge a draft that a reader types.

    Args:
        pair: the pair; its draft model's q is what the draft counts as drawn from
        prompt: the text before it, or a list of token ids or messages in JSON
        draft: the draft, as text or as token ids
        rules: names of rules with settings; by default all that fit
        settings: values of `Warping` by name, and `seed`

    Returns:
        tokens: the draft's tokens as texts
        rows: see `workbench.show.laws`
        note: "" or a sentence about the draft

    Raises:
        InputError: for input that cannot be used
    """
    values = checked(settings)
    if not (isinstance(prompt, str) and prompt and isinstance(draft, str) and draft):
        raise InputError("Give the text before the draft and the draft, or their token ids.")
    if pair.draft is None:
        raise InputError("This pair has no draft model, so the draft has no q; load another pair.")
    ids, seed = pasted(draft), values.pop("seed", 0)
    if isinstance(ids, str):
        if pair.tokenizer is None:
            raise InputError("This pair has no tokenizer; give token ids, as in [5, 9].")
        ids = pair.tokenizer(text("The draft", ids), add_special_tokens=False).input_ids
    check_length(len(ids))  # before a pass that would keep all of its logits
    places = read(pair, pasted(prompt), ids, drafted=True, **values)
    names, headed = Pieces(pair.tokenizer).labels(places.tokens), bool(pair.packed["draft"].reads)
    assert places.q is not None  # the pair has a draft
    for name, token, q in zip(names, places.tokens, places.q, strict=False):
        if not q[token]:
            raise InputError(
                f"With these settings the draft model never writes “{in_words(name)}” there; "
                "loosen the cut-offs, raise the temperature, or give another draft."
            )
    judgements = judge(places.p, places.q, places.tokens, rules, raw=places.log_p.exp(), seed=seed)
    return plain(judgements, names, "", headed=headed)


def checked(settings: Any) -> dict[str, Any]:
    if settings is not None and not isinstance(settings, Mapping):
        raise InputError(f"`settings` must be one JSON object, not {quoted(settings)}.")
    known = (*SAMPLING, "seed")
    for name in settings or {}:
        if name not in known:
            raise InputError(f"There is no setting {quoted(name)}: {nearest(str(name), known)}")
    values = dict(settings or {})
    if "seed" in values:
        (seed,) = (field for field in fields(Settings) if field.name == "seed")
        check("settings", seed, values["seed"])
    return values


def of_round(pair: ModelPair, run: Run, decoder: str, number: int) -> dict[str, Any]:
    """Judge the draft of a round, each place with the random number that the round drew there.

    Returns:
        as `of_text`; the decoder's own rule comes first

    Raises:
        InputError: for a round whose draft cannot be judged again
    """
    rounds = branch.sample(run, branch.TextPlace(decoder, 0)).rounds
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
    ids, _ = branch.prefix(pair, run, branch.TextPlace(decoder, at))
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
    return plain([*mine, *rest], [t.text for t in drafted], note, len(mine), headed)


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


def plain(
    judgements: Sequence[Judgement],
    names: Sequence[str],
    note: str,
    own: int = 0,
    headed: bool = False,
) -> dict[str, Any]:
    words = list(map(in_words, names))
    return {"tokens": list(names), "rows": grouped(judgements, words, own, headed), "note": note}


def in_words(name: str) -> str:
    return visible(name.strip(" ") or "␣")


DESCRIPTION = """Judge one draft by every verification rule, with the same random numbers for all.

The rules are those that the decoders run. For each: how many draft tokens it keeps, how many on
average over all random numbers, and why. Texts may be token ids: "[5, 9, 3]"."""
EXAMPLES = """examples:
  python -m workbench judge "Once upon a time" " there was a little girl"
  python -m workbench judge "Once upon a time" " there was" --rules match "typical(delta=1)"
  python -m workbench judge "Once upon a time" " there was" --temperature 0.7 --seed 3
"""


def register(commands: Any) -> None:
    command = flags.command(
        commands, "judge", "one draft judged by every rule", DESCRIPTION, EXAMPLES
    )
    command.set_defaults(command=run)
    flags.add_prompt(command)
    command.add_argument("draft", help="the draft tokens, as the text that they add")
    command.add_argument(
        "--rules", nargs="+", default=[], metavar="RULE", help="rules (default: all that fit)"
    )
    for field in shared():
        if field.name in (*SAMPLING, "seed"):
            flag, help = f"--{field.name.replace('_', '-')}", field.metadata["help"]
            if isinstance(field.default, bool):
                command.add_argument(flag, action="store_true", default=None, help=help)
            else:
                command.add_argument(flag, metavar=field.name.split("_")[-1].upper(), help=help)
    flags.add_models(command)


def run(args: argparse.Namespace) -> int:
    settings = {
        field.name: parse(field, value) if isinstance(value, str) else value
        for field in shared()
        if (value := getattr(args, field.name, None)) is not None
    }
    device, choice = show.loaded(args)
    answer = device.ask(choice, of_text, flags.operand(args), args.draft, args.rules, settings)
    console = Console(highlight=False)
    console.print("Draft:", " | ".join(map(visible, answer["tokens"])), markup=False)
    lines = [
        [str(row["kept"]), f"{row['mean']:.2f}", row["law"], f"{row['title']}: {row['why']}"]
        for row in answer["rows"]
    ]
    heads = ["keeps", "on average", "its text", "rules, and why"]
    console.print(show.grid(Table(heads, lines)))
    return 0
