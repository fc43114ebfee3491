"""Whether an engine serves the model here, and whether its greedy text is that model's."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

import decoders
from decoders import Divergence, InputError, ModelPair
from decoders.inputs import decoded
from workbench.engines.record import Record
from workbench.measuring.served import told
from workbench.measuring.work import Work
from workbench.runs.agreement import Agreement
from workbench.runs.record import Result
from workbench.studies.schemes import BASELINE

# What a name may end in besides the model's: the format of a file, the number type of its weights.
ENDINGS = re.compile(r"(\.gguf|\.safetensors)?$"), re.compile(r"[-_.](f16|fp16|bf16|f32|fp32)$")
COARSE = "bfloat16"  # the number type that explains most, for servers whose own is not known


def same_model(name: str, pair: ModelPair) -> bool:
    """Whether a model's name in a server's words is the target's: "Qwen3-8B" is Qwen/Qwen3-8B.

    The folders of a pair are called target and draft, so the folder around them names the target.
    """
    theirs, ours = map(_parts, (name, str(pair.target.config.name_or_path)))
    shared = min(len(theirs), len(ours))
    return shared > 0 and theirs[-shared:] == ours[-shared:]


def _parts(name: str) -> list[str]:
    for ending in ENDINGS:
        name = ending.sub("", name.casefold())
    parts = [part for part in re.split(r"[/\\]", name) if part not in ("", ".")]
    return parts[:-1] if len(parts) > 1 and parts[-1] == "target" else parts


def given(
    work: Work,
    result: Result,
    record: Record,
    greedy: Sequence[int] | None,
    dtype: str | None,
) -> Result:
    """The result with the judge's verdict on its greedy text, beside greedy decoding here.

    Args:
        work: the pair, the prompts and the settings
        result: the result, of one prompt
        record: the answer
        greedy: the tokens of greedy decoding here; None decodes them now
        dtype: the number type that the server computes in; None if that is not known
    """
    sample = result.alone
    prompt = work.ids[sample.prompt]
    try:
        if greedy is None:
            most = work.settings.max_new_tokens
            alone = decoders.generate(work.pair, prompt, BASELINE, max_new_tokens=most)
            greedy = alone.tokens
        found, used = _judged(work, prompt, work.texts[sample.prompt], greedy, record, dtype)
    except InputError as error:
        return replace(result, remarks=[*result.remarks, f"Its text gets no verdict: {error}"])
    differs = found.verdict != "same"
    gap = abs(found.gap_float64)
    return replace(
        result,
        agreement=Agreement(
            BASELINE, 1, int(differs), found.place if differs else None,
            gap if differs and isfinite(gap) else None, found.bound / 2 if differs else None,
            found.verdict == "near-tie", used, found.verdict, found.says,
        ),
    )  # fmt: skip


def _judged(
    work: Work, prompt: list[int], text: str | None, greedy: Sequence[int], record: Record,
    dtype: str | None,
) -> tuple[Divergence, str]:  # fmt: skip
    """The verdict, and the number type that it was given for.

    If the server's is not known, a difference that the coarsest usual one may explain is no fault.
    """
    pair, theirs = work.pair, told(record, work.pair)

    def compare(kind: str) -> Divergence:
        if theirs is not None:
            return decoders.compare_greedy(pair, prompt, list(greedy), theirs, dtype=kind)
        ours = decoded(pair.tokenizer, list(greedy))
        return decoders.compare_greedy(pair, text or prompt, ours, record.text, dtype=kind)

    own = str(pair.target.dtype).removeprefix("torch.")
    found = compare(dtype or own)
    if dtype is not None or found.verdict in ("same", "near-tie"):
        return found, dtype or own
    coarse = compare(COARSE)
    if coarse.verdict == "fault":
        return coarse, COARSE
    says = f"Cannot tell in which number type it computes. In {COARSE}: {coarse.says}"
    return replace(coarse, verdict="cannot tell", says=says), COARSE
