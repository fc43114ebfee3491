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
from workbench.runs.record import Agreement, Result
from workbench.studies.schemes import BASELINE

# What a name may end in besides the model's: the format of a file, the number type of its weights.
ENDINGS = re.compile(r"(\.gguf|\.safetensors)?$"), re.compile(r"[-_.](f16|fp16|bf16|f32|fp32)$")
# The number type that explains most, and that most servers compute in.
COARSE = "bfloat16"
UNTOLD = (
    f" The server does not tell its number type, so {COARSE} is taken; whoever runs the workbench "
    "may name it as `dtype`."
)


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
        text, used = work.texts[sample.prompt], dtype or COARSE
        found = _judged(work, prompt, text, greedy, record, used)
    except InputError as error:
        return replace(result, remarks=[*result.remarks, f"Its text gets no verdict: {error}"])
    differs = found.verdict != "same"
    gap, unsaid = abs(found.gap_float64), UNTOLD if differs and dtype is None else ""
    return replace(
        result,
        agreement=Agreement(
            BASELINE, 1, int(differs), found.place if differs else None,
            gap if differs and isfinite(gap) else None, found.bound / 2 if differs else None,
            found.verdict == "near-tie", used, found.verdict, found.says + unsaid,
        ),
    )  # fmt: skip


def _judged(
    work: Work, prompt: list[int], text: str | None, greedy: Sequence[int], record: Record,
    dtype: str,
) -> Divergence:  # fmt: skip
    pair, theirs = work.pair, told(record, work.pair)
    if theirs is not None:
        return decoders.compare_greedy(pair, prompt, list(greedy), theirs, dtype=dtype)
    ours = decoded(pair.tokenizer, list(greedy))
    return decoders.compare_greedy(pair, text or prompt, ours, record.text, dtype=dtype)
