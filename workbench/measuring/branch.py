"""Branching: what else could stand at a place of a run's text, and the study that continues from there."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import decoders
from decoders import Fate, InputError, Method, ModelPair, Trial
from decoders.inputs import is_whole
from decoders.settings import Decoding, setting
from decoders.warp import Warping
from workbench.measuring.admit import encode_prompt
from workbench.measuring.detokenise import Pieces, Place
from workbench.models.environment import environment
from workbench.runs.record import Run, Sample
from workbench.studies.comparison import Comparison
from workbench.studies.settings import Settings
from workbench.studies.start import Start, Step

LISTED = 20  # alternatives shown


@dataclass(frozen=True)
class At:
    """A place in a run: after `at` tokens of a decoder's text."""

    decoder: str
    at: int
    repeat: int = 0


@dataclass(frozen=True)
class Choice:
    """A token that could stand at a place: its probability under the target as it is, and that with which the decoder writes it, 0 if it
    never does; None for a decoder that does not write as the target samples, such as beam search."""

    id: int
    text: str
    raw: float
    warped: float | None


@dataclass(frozen=True)
class Look(Method):
    """Not a decoder that writes: it asks the target once what follows the text, and commits a round whose trials are the likeliest
    tokens and those `wanted`."""

    name = "look"
    title = "Look"
    law = None
    paper, section = "Leviathan et al. 2023", "2.2"
    summary = "Reads what the large model says of the next token."

    wanted: tuple[int, ...] = setting((), "vocabulary ids to look at besides the likeliest")

    def decode(self, request: Any) -> Decoding:
        (reading,) = yield request.ask("target", [request.tip], LISTED)
        p = request.warp(reading)
        tokens = dict.fromkeys([*reading.likeliest(LISTED)[0], *self.wanted])
        trials = [Trial(request.tree.add(request.tip, x), x, request.tip, Fate.SAMPLED, p=p[x]) for x in tokens]
        yield request.commit(trials, [request.answer], request.answer, "budget")


def alternatives(pair: ModelPair, run: Run, where: At, wanted: Sequence[int] = ()) -> list[Choice]:
    """The likeliest tokens at a place, and those wanted, from one pass over the tokens before it.

    Raises InputError for a place that is not there, a run of another pair, or a token beyond the vocabulary.
    """
    for token in wanted:
        in_vocabulary(pair, token)
    ids, place = prefix(pair, run, where)
    settings = Settings.from_json({**run.settings, "decoders": [where.decoder]})
    (method,) = settings.methods
    warping = method.warping(Warping(settings.temperature, settings.top_k, settings.top_p))
    options = {**settings.decoding, **asdict(warping), "max_new_tokens": 1}
    result = decoders.generate(pair, ids, Look(tuple(wanted)), **options)
    label = Pieces(pair.tokenizer).label
    trials: list[Any] = result.rounds[0].trials  # which have both likelihoods
    samples = method.law == "target"
    return [Choice(t.token, label(place, t.token), math.exp(t.log_p), t.p if samples else None) for t in trials]


def listed(pair: ModelPair, run: Run, where: At, token: int | str | None = None) -> tuple[list[Choice], int | None]:
    """The same, with the token that a reader typed among them, and its vocabulary id."""
    wanted = None if token is None else token_of(pair, token)
    return alternatives(pair, run, where, [] if wanted is None else [wanted]), wanted


def branch(pair: ModelPair, run: Run, where: At, token: int | str, names: Sequence[str] | None = None) -> Comparison:
    """The study that continues a run's text from a place with a chosen token, by decoders of the run (the text's own if none is named),
    with the settings of the run. Raises InputError as `alternatives` does."""
    chosen = token_of(pair, token)
    ids, place = prefix(pair, run, where)
    text = Pieces(pair.tokenizer).label(place, chosen)
    kept = _sample(run, where).tokens[: where.at]
    settings = Settings.from_json({**run.settings, "decoders": [where.decoder] if names is None else list(names)})
    earlier = Start.from_json(run.study["start"]).trail if run.study.get("start") else ()
    step = Step(run.id, where.decoder, where.repeat, where.at, text)
    prompt = str(run.study.get("prompt", "")) + "".join(t.text for t in kept) + text
    return Comparison(prompt, settings, Start((*ids, chosen), (*earlier, step)))


def prefix(pair: ModelPair, run: Run, where: At) -> tuple[list[int], Place]:
    """The token ids before a place, the prompt's first, and where their text stands. Raises InputError if they are not known."""
    sample = _sample(run, where)
    of_pair(pair, run)
    if not 0 <= where.at <= len(sample.tokens):
        raise InputError(
            f"This text has {len(sample.tokens)} tokens; choose a place from 0 to {len(sample.tokens)}, not {where.at}."
        )
    kept, place, pieces = sample.tokens[: where.at], Place(), Pieces(pair.tokenizer)
    for token in kept:
        in_vocabulary(pair, token.id)
        _, place = pieces.extend(place, token.id)
    return [*_prompt(pair, run, sample), *(token.id for token in kept)], place


def _prompt(pair: ModelPair, run: Run, sample: Sample) -> list[int]:
    """The prompt's token ids as the run used them; runs of earlier versions did not keep them."""
    found = sample.prompt_ids or encode_prompt(pair, run.study["prompt"], bool(run.settings.get("chat_template")))
    if len(found) != sample.prompt_length:
        raise InputError("The prompt of this run is tokenised otherwise here; run it again to branch from it.")
    for token in found:
        in_vocabulary(pair, token)
    return found


def _sample(run: Run, where: At) -> Sample:
    if run.kind != Comparison.kind:
        raise InputError(f"Only texts of a comparison can be branched; this run is a {run.kind}.")
    if not (is_whole(where.at) and is_whole(where.repeat) and isinstance(where.decoder, str)):
        raise InputError("A place is a decoder's name, and a number of tokens of its text.")
    found = [r for r in run.results if (r.decoder, r.repeat) == (where.decoder, where.repeat)]
    if not found:
        raise InputError(f"This run has no text of {where.decoder!r:.80}; it has {', '.join(run.decoders) or 'none'}.")
    return found[0].alone


def of_pair(pair: ModelPair, run: Run) -> None:
    """Raises InputError, with the pair to load, if a run was made with another one."""
    here = environment(pair)
    for role in ("target", "draft"):
        own, loaded = run.environment.get(role), here[role]
        if own and (own.get("name"), own.get("parameters")) != (
            (loaded or {}).get("name"),
            (loaded or {}).get("parameters"),
        ):
            raise InputError(f"This run was made with {run.models}; load that pair to branch from it.")


def token_of(pair: ModelPair, token: int | str) -> int:
    """A vocabulary id given as a number, as "#123", or as the text of a single token. Raises InputError if it is none."""
    if isinstance(token, str) and token.startswith("#") and token[1:].isdecimal() and len(token) < 12:
        token = int(token[1:])
    if not isinstance(token, str):
        return in_vocabulary(pair, token)
    if pair.tokenizer is None:
        raise InputError("This pair has no tokenizer; give the token's number, as in #123.")
    ids = pair.tokenizer(token, add_special_tokens=False).input_ids if token else []
    if len(ids) != 1:
        parts = " | ".join(pair.tokenizer.decode([i]) for i in ids[:6])
        why = f"{len(ids)} tokens here ({parts}{' ...' if len(ids) > 6 else ''})" if ids else "no token"
        raise InputError(f"“{token[:40]}” is {why}; give the text of one token, or its number, as in #123.")
    return ids[0]


def in_vocabulary(pair: ModelPair, token: Any) -> int:
    if not is_whole(token) or not 0 <= token < pair.vocabulary:
        raise InputError(f"There is no token {token!r:.40}; the vocabulary has ids 0 to {pair.vocabulary - 1}.")
    return int(token)
