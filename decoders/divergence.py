"""A text read without decoding: its distributions (read), and where two greedy texts part."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from math import inf
from typing import Any, Literal, overload

import torch
from torch.overrides import TorchFunctionMode
from transformers import LogitsProcessor, PreTrainedModel

from decoders.distribution import Warping, warp
from decoders.engine.loading.pair import ModelPair
from decoders.engine.models.loaded import undisturbed
from decoders.engine.protocols import Features, Layers, Model
from decoders.errors import InputError, ModelError, allowed
from decoders.generate import Prompt, Sampling, checked_pair, penalties_of
from decoders.inputs import as_prompts, as_tokens, decoded, encode
from decoders.inputs import text as encodable
from decoders.penalties import applied
from decoders.shapes import Logits, NodeId, Penalties, Probs, TokenId
from decoders.tree import TokenTree


@dataclass(frozen=True, eq=False)
class Places:
    """The distributions of a pair's models at the places of a text.

    Place i follows the prompt and the first i tokens of the text. All tensors are where the target
    is, in float32 or float64.

    Attributes:
        prompt_tokens: the token ids of the prompt
        tokens: the token ids of the text; there is one place more
        logits: the target's raw logits, changed by penalties only, (places, V)
        p: the distributions that the target samples from, (places, V)
        q: those of the draft, over the target's vocabulary, (places, V); None if it was not read
    """

    prompt_tokens: list[TokenId]
    tokens: list[TokenId]
    logits: Logits
    p: Probs
    q: Probs | None

    @property
    def log_p(self) -> torch.Tensor:
        """The target's raw log-probabilities in nats, (places, V).

        They are taken before temperature and truncation.
        """
        return self.logits.log_softmax(-1)


@overload
def read(
    pair: ModelPair, prompt: Prompt, text: Sequence[TokenId] = (), *,
    penalties: bool | Sequence[LogitsProcessor] = ..., draft: bool | str = ..., drafted: bool = ...,
    **warping: Any,
) -> Places: ...  # fmt: skip
@overload
def read(
    pair: ModelPair, prompt: Prompt, text: Sequence[Sequence[TokenId]], *,
    penalties: bool | Sequence[LogitsProcessor] = ..., draft: bool | str = ..., drafted: bool = ...,
    **warping: Any,
) -> list[Places]: ...  # fmt: skip
def read(
    pair: ModelPair, prompt: Prompt, text: Any = (), *,
    penalties: bool | Sequence[LogitsProcessor] = Sampling.penalties,
    draft: bool | str = True, drafted: bool = False, **warping: Any,
) -> Places | list[Places]:  # fmt: skip
    """Read a text as decoders do, in one pass of each model.

    The result has p and q at every place from the end of the prompt to the end of the text. A draft
    with another tokenizer is read as decoders read it: its q covers the tokens that both know. By
    default a head's q is that of the first token of a draft at each place, made of the target's
    states alone.

    Args:
        prompt: see `stream`
        text: token ids after the prompt, such as the `tokens` of a Result; or several lists of
            them. Several texts are branches of one tree, so a common beginning is read once.
        penalties: see `stream`
        draft: whether to read the draft as well, if there is one; "head" reads the head in its
            place
        drafted: whether the text is one draft after the prompt: a head's q after its tokens is then
            made of the head's own states
        warping: see `stream`

    Returns:
        Places, or a list of them for several texts

    Raises:
        InputError: for input that cannot be used, before any pass
        ModelError: if a model gives logits that are not numbers
    """
    sampling = Sampling(penalties=penalties, warping=Warping(**warping))
    ids = encode(prompt, checked_pair(pair).tokenizer, pair.vocabulary).ids
    lists, several = as_prompts(text)
    texts = [
        as_tokens("The text to read is one or more lists of token ids", t, pair.vocabulary)
        for t in lists
    ]
    changes = penalties_of(sampling, pair, ids)
    allowed("draft", draft, choices=(True, False, "head"))
    other = "draft" if draft is True else draft
    if other == "head" and pair.head is None:
        raise InputError("This pair has no head to read; load the target with one.")
    read = [role for role in ("target", other) if role in pair.packed]
    pair.follow(read)
    models = [pair.packed[role] for role in read]
    tokens = len(ids) + max(map(len, texts))
    for model in models:
        if model.positions is not None and tokens > model.positions:
            raise InputError(
                f"The prompt and the text, {tokens} tokens together, exceed the "
                f"{model.positions} positions of the {model.name}; shorten them."
            )
    tree, paths = _grown(ids, texts)
    nodes = sorted({node for path in paths for node in path})
    reads = models[-1].reads
    logits, states = _logits(models[0], tree, nodes, changes, reads)
    if states is not None and drafted:
        states = states.first(len(ids) - 1)
    others = [_logits(model, tree, nodes, changes, known=states)[0] for model in models[1:]]
    p = warp(logits, sampling.warping)
    q = warp(others[0], sampling.warping).to(logits.device) if others else None
    row = {node: i for i, node in enumerate(nodes)}
    places = []
    for each, path in zip(texts, paths, strict=True):
        # One text has all rows in order, which need no copy.
        rows: Any = [row[node] for node in path] if several else slice(None)
        places.append(Places(ids, each, logits[rows], p[rows], None if q is None else q[rows]))
    return places if several else places[0]


def _grown(
    ids: list[TokenId], texts: Sequence[list[TokenId]]
) -> tuple[TokenTree, list[list[NodeId]]]:
    """A tree of all texts, and the nodes of each from the prompt's last one on."""
    common = [
        column[0] for column in takewhile(lambda c: len(set(c)) == 1, zip(*texts, strict=False))
    ]
    tree, paths = TokenTree([*ids, *common]), []
    for tokens in texts:
        path = tree.trunk[len(ids) - 1 :]
        for token in tokens[len(common) :]:
            path.append(tree.add(path[-1], token))
        paths.append(path)
    return tree, paths


def _logits(
    model: Model,
    tree: TokenTree,
    nodes: list[NodeId],
    penalties: Penalties | None,
    reads: Layers = (),
    known: Features | None = None,
) -> tuple[Logits, Features | None]:
    """The logits of one model at these nodes, and its hidden states in the layers `reads`.

    A head gets to `know` those of the target before.
    """
    engine = model.engine(len(tree.tokens))
    engine.admit(tree, len(tree.tokens))
    try:
        if known is not None and model.reads:
            with torch.inference_mode():
                engine.learn(tree, known)
        (answer,) = engine.run([(tree, nodes)], None, reads)
    finally:
        engine.release(tree)
    rows = answer.logits
    assert rows is not None  # without a chunk every node is fed
    if not rows.amax(-1).isfinite().all():
        raise ModelError(
            f"The {model.name} gave logits that are not numbers; check its weights and its dtype."
        )
    if penalties:
        rows = torch.stack(
            [
                applied(penalties, tree.text(node), row)
                for node, row in zip(nodes, rows, strict=True)
            ]
        )
    return rows, answer.features


Verdict = Literal["same", "near-tie", "fault", "cannot tell"]
NAMES = ("first", "second")
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")
# Other engines round in other ways than the passes measured here, but not by so many times as much.
SURE = 10


@dataclass(frozen=True)
class Divergence:
    """Where two texts part, and why.

    Attributes:
        verdict: "near-tie" if each text has the likeliest token there, or one at most `bound` below
            it; "fault" if a text has one more than ten times as far below; "same" if they do not
            part, or one is a beginning of the other that was cut off; else "cannot tell"
        says: the verdict with its reasons, in words
        place: new tokens before the parting; None for equal texts
        tokens: the two candidates; a text that ends has the likeliest end token, or None
        gap_float32: the first candidate's logit less the second's, in float32
        gap_float64: the same in float64
        behind: how far each candidate's logit is below the highest, in float64
        bound: the most that two logits can move against each other by rounding: twice the largest
            distance of any logit from float64, up to the parting, in any of the passes measured
        at_fault: the texts at fault, of "first" and "second"
    """

    verdict: Verdict
    says: str
    place: int | None = None
    tokens: tuple[TokenId | None, TokenId | None] = (None, None)
    gap_float32: float = 0.0
    gap_float64: float = 0.0
    behind: tuple[float, float] = (0.0, 0.0)
    bound: float = 0.0
    at_fault: tuple[str, ...] = ()


def compare_greedy(
    pair: ModelPair, prompt: Prompt, first: Prompt, second: Prompt, *, dtype: str = "auto"
) -> Divergence:
    """Say where two greedy texts of the target part, and whether rounding explains it.

    Both are compared with the target in float64. Rounding is measured, not guessed: in passes of
    one row, of a batch, and as decoders read. The copies need 8 bytes for each parameter, and 4
    more if the target is not in float32.

    Args:
        pair: the models, of which the target counts
        prompt: see `stream`
        first: the new text after the prompt, or its token ids. Text is tokenised again, perhaps
            not as it was written; then the verdict is at most "cannot tell".
        second: the other one
        dtype: the number type in which they were made, the coarser one if there are two; "auto" is
            the target's

    Raises:
        InputError: for input that cannot be used, before any pass
        ModelError: if the model gives logits that are not numbers
    """
    ids = encode(prompt, checked_pair(pair).tokenizer, pair.vocabulary).ids
    model = pair.target
    kind = allowed("dtype", dtype, choices=DTYPES)
    kind = str(model.dtype)[6:] if kind == "auto" else kind
    if not isinstance(model, PreTrainedModel):
        raise InputError(
            f"The {pair.packed['target'].name} has no float64 to compare with; load the model of "
            "transformers that it was made of."
        )
    if getattr(model, "hf_quantizer", None):
        raise InputError("Quantised weights have no float64; load the target as it is stored.")
    given = zip(NAMES, (first, second), strict=True)
    a, b = (_new_tokens(pair, prompt, ids, *each) for each in given)
    if a == b:
        count = "1 token" if len(a) == 1 else f"{len(a)} tokens"
        return Divergence("same", f"The texts are the same, with {count}.")
    place = len(list(takewhile(lambda xy: xy[0] == xy[1], zip(a, b, strict=False))))
    ours = read(pair, ids, a[:place], draft=False).logits  # it also checks the length
    # Of a long prompt only the last row counts.
    target: Any = pair.packed["target"]
    keep = {"logits_to_keep": place + 1} if target.keeps else {}
    passes_in = partial(_passes, model, [*ids, *a[:place]], place, keep)
    exact, _ = passes_in("float64")
    passes = passes_in(kind)
    if kind == str(model.dtype)[6:]:
        passes.append(ours.double().cpu())
    single = passes if kind == "float32" else passes_in("float32")
    bound = 2 * max((logits - exact).abs().nan_to_num(0).max().item() for logits in passes)
    pasted = [isinstance(each, str) for each in (first, second)]
    return _judged(pair, kind, (a, b), pasted, exact, single[0], bound)


def _new_tokens(
    pair: ModelPair, prompt: Prompt, ids: list[TokenId], name: str, given: Prompt
) -> list[TokenId]:
    if not isinstance(given, str):
        rule = f"The {name} text is text or a list of token ids"
        return as_tokens(rule, given, pair.vocabulary)
    if pair.tokenizer is None:
        raise InputError("This pair has no tokenizer; give the texts as lists of token ids.")
    encodable(f"The {name} text", given)
    if isinstance(prompt, str):
        whole = encode(prompt + given, pair.tokenizer, pair.vocabulary).ids
        if whole[: len(ids)] == ids:
            return whole[len(ids) :]
    return list(pair.tokenizer(given, add_special_tokens=False).input_ids)


class _Float64(TorchFunctionMode):
    """Has float64 where the code of a model asks for float32, as in norms and rotations."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def wide(x: Any) -> Any:
            return torch.float64 if x is torch.float32 else x

        func = torch.Tensor.double if func is torch.Tensor.float else func
        return func(*map(wide, args), **{k: wide(v) for k, v in (kwargs or {}).items()})


def _passes(
    model: PreTrainedModel, ids: Sequence[TokenId], new: int, keep: Mapping[str, int], kind: str
) -> list[Logits]:
    """The logits after the prompt, (new + 1, V), of a pass of one row and of one of two rows.

    Args:
        model: the model; in another number type a copy of it runs
        ids: the tokens of the prompt, and the new ones
        new: number of new tokens
        keep: has the model make no other logits
        kind: the number type
    """
    dtype = getattr(torch, kind)
    if model.dtype != dtype:
        model = copy.deepcopy(model)
        # As `from_pretrained` does: what is computed from the config stays as it is.
        for tensor in model.state_dict(keep_vars=True).values():
            tensor.data = tensor.data.to(dtype)
    with undisturbed(model.device), _Float64() if kind == "float64" else nullcontext():
        row = torch.tensor([ids], device=model.device)
        both = [model(row.repeat(rows, 1), use_cache=False, **keep).logits for rows in (1, 2)]
    return [logits[-1, -new - 1 :].cpu().double() for logits in both]


# What a text does at the parting, the weightiest first, with the verdict and its words.
VERDICTS: dict[str, tuple[Verdict, str]] = {
    "fault": ("fault", "Fault {at}: {texts}; {rounding}."),
    "retold": (
        "cannot tell",
        "Cannot tell {at}: as tokenised here, {texts}, but its letters agree with the likeliest "
        "token, so it may have been written in other tokens; give token ids.",
    ),
    "outer": (
        "cannot tell",
        "Cannot tell {at}: {texts}, and parts in outer white space alone, which pasting adds and "
        "takes away; give token ids.",
    ),
    "unclear": (
        "cannot tell",
        "Cannot tell {at}: {texts}; {rounding} in the passes measured, and up to {sure} times as "
        "much may be the rounding of another engine.",
    ),
    "cut": (
        "same",
        "No difference in the first {place} new tokens; then one text is cut off.",
    ),
    "greedy": (
        "near-tie",
        "Near-tie {at}: {both} are {gap64:.3g} apart in float64 and {gap32:.3g} in float32; "
        "{rounding}, so either may come first.",
    ),
}


def _judged(
    pair: ModelPair, kind: str, texts: tuple[list[TokenId], list[TokenId]],
    pasted: Sequence[bool], exact: Logits, single: Logits, bound: float,
) -> Divergence:  # fmt: skip
    """The verdict.

    Args:
        kind: the number type of the texts
        texts: their new tokens
        pasted: for each text, whether it was tokenised here
        exact: logits in float64 after the prompt, up to the parting (places, V)
        single: the same of a pass in float32
        bound: see `Divergence`
    """
    place = len(exact) - 1
    common = exact[range(place), texts[0][:place]]
    unlikely = (exact[:-1].amax(-1) - common > SURE * bound).nonzero().flatten().tolist()
    place = min([place, *unlikely])  # the tokens before the parting must be greedy, too
    here = exact[place]
    ends = (token for token in pair.end_tokens if 0 <= token < len(here))
    end = max(ends, key=lambda token: here[token].item(), default=None)
    first, second = (text[place] if len(text) > place else end for text in texts)
    behind, states = [], []
    for text, token, retold in zip(texts, (first, second), pasted, strict=True):
        behind.append(inf if token is None else (here.max() - here[token]).item())
        states.append(
            "greedy" if behind[-1] <= bound
            else "cut" if len(text) == place
            else "unclear" if behind[-1] <= SURE * bound
            else _excuse(pair, text, place, int(here.argmax())) if retold
            else "fault"
        )  # fmt: skip
    gap32, gap64 = (
        inf if first is None or second is None else (row[first] - row[second]).item()
        for row in (single[place], here)
    )
    state = next(state for state in VERDICTS if state in states)
    verdict, words = VERDICTS[state]
    each = [
        f"the {name} text has {_quoted(pair, token)}, {below:.3g} below"
        for name, token, below, its in zip(NAMES, (first, second), behind, states, strict=True)
        if its == state
    ]
    says = words.format(
        at=f"at new token {place + 1} (likeliest: {_quoted(pair, int(here.argmax()))})",
        texts=" and ".join(each), rounding=f"rounding in {kind} explains at most {bound:.2g}",
        both=" and ".join(_quoted(pair, token) for token in (first, second)), sure=SURE,
        gap32=abs(gap32), gap64=abs(gap64), place=place,
    )  # fmt: skip
    at_fault = tuple(n for n, its in zip(NAMES, states, strict=True) if its == "fault")
    return Divergence(
        verdict, says, place, (first, second), gap32, gap64, (behind[0], behind[1]), bound, at_fault
    )


def _quoted(pair: ModelPair, token: TokenId | None) -> str:
    if token is None:
        return "the end"
    return f"“{pair.tokenizer.decode([token])}”" if pair.tokenizer else f"token {token}"


def _excuse(pair: ModelPair, text: list[TokenId], place: int, token: TokenId) -> str:
    """Why a text that was tokenised here may have another token there than the likeliest one.

    "retold" if its letters may be those of the likeliest, "outer" if they may be but for white
    space around the whole text; else "fault"."""
    whole, before, after = (
        decoded(pair.tokenizer, tokens) for tokens in (text, text[:place], [*text[:place], token])
    )
    after = after.rstrip("\ufffd")  # a token may end within a character
    if len(after) > len(before) and _begins(whole, after):
        return "retold"
    first = not before.strip() and _begins(whole.lstrip(), after.lstrip())
    return "outer" if first or not whole[len(before) :].strip() else "fault"


def _begins(first: str, second: str) -> bool:
    return first.startswith(second) or second.startswith(first)
