"""Branching: the alternatives at a place of a run's text, and the study that continues there."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from decoders import InputError, ModelPair, catalog, read
from decoders.distribution import Warping, top
from decoders.errors import quoted, refuse
from decoders.inputs import is_whole
from decoders.settings import Law
from workbench.kinds.comparison import Comparison
from workbench.measuring.transcript import Pieces, Place
from workbench.models.keeper import environment
from workbench.runs.record import Run, Sample
from workbench.studies.prompts import Chat, Words
from workbench.studies.settings import Settings
from workbench.studies.study import BranchStep, Start

LISTED = 20  # alternatives shown


@dataclass(frozen=True)
class Candidate:
    """A token that could stand at a place.

    Attributes:
        id: its id
        text: its text
        raw: its probability under the target
        warped: its probability under the decoder, 0 if it never writes it; None for a decoder that
            does not sample as the target does, such as beam search
    """

    id: int
    text: str
    raw: float
    warped: float | None


def alternatives(
    pair: ModelPair, run: Run, decoder: str, at: int, token: int | str | None = None
) -> tuple[list[Candidate], int | None]:
    """The likeliest tokens at a place, from one pass over the tokens before it.

    Args:
        decoder: the decoder whose text it is, of the run's first repeat
        at: tokens of the text before the place
        token: a token that a reader typed, if any, see `token_of`; it is among them

    Returns:
        the alternatives, and the id of the typed token

    Raises:
        InputError: for a place that does not exist, a run of another pair, or a text that is not a
            single token
    """
    wanted = None if token is None else token_of(pair, token)
    ids, place = prefix(pair, run, decoder, at)
    settings = Settings.from_json({**run.settings, "decoders": [decoder]})
    (method,) = settings.methods
    places = read(
        pair,
        ids,
        **asdict(method.warping(Warping.of(settings))),
        penalties=settings.penalties,
        draft=False,
    )
    _, likeliest = top(places.logits[0], LISTED)
    tokens = likeliest[:LISTED].tolist()
    if wanted is not None and wanted not in tokens:
        tokens.append(wanted)
    raw, warped = (p[0, tokens].tolist() for p in (places.log_p.exp(), places.p))
    label, samples = Pieces(pair.tokenizer).label, method.law == Law.TARGET
    return [
        Candidate(t, label(place, t), r, w if samples else None)
        for t, r, w in zip(tokens, raw, warped, strict=True)
    ], wanted


def branch(
    pair: ModelPair,
    run: Run,
    decoder: str,
    at: int,
    token: int | str,
    names: Sequence[str] | None = None,
) -> Comparison:
    """The study that continues a run's text from a place, with the settings of the run.

    Args:
        decoder: the decoder whose text it is, of the run's first repeat
        at: tokens of the text before the place
        token: the token to continue with, see `token_of`
        names: decoders of the run; by default the one whose text it is

    Raises:
        InputError: as in `alternatives`, and for a text that is not a single token
    """
    chosen = token_of(pair, token)
    ids, place = prefix(pair, run, decoder, at)
    text = Pieces(pair.tokenizer).label(place, chosen)
    before = "".join(token.text for token in sample(run, decoder, at).tokens[:at])
    earlier = Start.from_json(run.study["start"]).trail if run.study.get("start") else ()
    return Comparison(
        _continued(run, before + text),
        Settings.from_json({**run.settings, "decoders": [decoder] if names is None else names}),
        Start(
            (*ids, chosen),
            (*earlier, BranchStep(run.id, decoder, 0, at, text)),
        ),
    )


def _continued(run: Run, text: str) -> Words:
    """The prompt of a run with more text after it; in a chat, the answer begins with that text."""
    prompt = run.study.get("prompt", "")
    if isinstance(prompt, list):
        return Chat.of(prompt).answered(text)
    if run.settings.get("chat_template") is True:
        return Chat((("user", str(prompt)),)).answered(text)
    return str(prompt) + text


def prefix(pair: ModelPair, run: Run, decoder: str, at: int) -> tuple[list[int], Place]:
    """The token ids before a place, beginning with the prompt, and the place after their text.

    Raises:
        InputError: if they are not known
    """
    text = sample(run, decoder, at)
    of_pair(pair, run)
    count = len(text.tokens)
    refuse(
        (
            not 0 <= at <= count,
            f"This text has {count} tokens; choose a place from 0 to {count}, not {at}.",
        ),
        (
            not text.prompt_ids,
            "This run did not keep the tokens of its prompt; run it again to branch from it.",
        ),
    )
    before, place = [token.id for token in text.tokens[:at]], Place()
    ids = [in_vocabulary(pair, token) for token in (*text.prompt_ids, *before)]
    for token in before:
        _, place = Pieces(pair.tokenizer).extend(place, token)
    return ids, place


def sample(run: Run, decoder: str, at: int) -> Sample:
    refuse(
        (
            run.kind != Comparison.kind,
            f"Only texts of a comparison can be branched; this run is a {run.kind}.",
        ),
        (
            not (is_whole(at) and isinstance(decoder, str)),
            "A place is a decoder's name and a number of tokens of its text.",
        ),
    )
    results = [r for r in run.results if (r.decoder, r.repeat) == (decoder, 0)]
    if not results:
        raise InputError(
            f"This run has no text of {quoted(decoder)}; it has "
            f"{', '.join(run.decoders) or 'none'}."
        )
    return results[0].alone


def of_pair(pair: ModelPair, run: Run) -> None:
    here, roles = environment(pair), ["target", "draft"]
    known = [name for name in run.settings.get("decoders", ()) if name in catalog]
    if any(catalog[name](**run.settings.get(name, {})).uses_head for name in known):
        roles.append("head")
    for role in roles:
        own, loaded = run.environment.get(role), here.get(role) or {}
        if own and any(own.get(name) != loaded.get(name) for name in ("name", "parameters")):
            raise InputError(f"This run was made with {run.models}; load that pair to continue it.")


def token_of(pair: ModelPair, token: int | str) -> int:
    """The id of a token.

    Args:
        token: its id, as a number or as "#123", or the text of a single token

    Raises:
        InputError: if it is not a token of the vocabulary
    """
    if isinstance(token, str) and re.fullmatch(r"#\d{1,10}", token):
        token = int(token[1:])
    if not isinstance(token, str):
        return in_vocabulary(pair, token)
    if pair.tokenizer is None:
        raise InputError("This pair has no tokenizer; give the token's number, as in #123.")
    ids = pair.tokenizer(token, add_special_tokens=False).input_ids if token else []
    if len(ids) != 1:
        parts = " | ".join(pair.tokenizer.decode([i]) for i in ids[:6])
        why = f"{len(ids)} tokens here ({parts}{' ...' if len(ids) > 6 else ''})"
        raise InputError(
            f"“{token[:40]}” is {why if ids else 'no token'}; give the text of one token, or its "
            "number, as in #123."
        )
    return ids[0]


def in_vocabulary(pair: ModelPair, token: Any) -> int:
    if not is_whole(token) or not 0 <= token < pair.vocabulary:
        raise InputError(
            f"There is no token {quoted(token)}; the vocabulary has ids 0 to {pair.vocabulary - 1}."
        )
    return int(token)
