"""The distributions of a pair's models at every place of a text, without decoding (read)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Unpack, overload

import torch
from transformers import LogitsProcessor

from decoders.distribution import Warping, WarpingOptions, warp
from decoders.engine.loading.pair import ModelPair
from decoders.engine.protocols import Features, Layers, Model
from decoders.errors import InputError, ModelError, allowed
from decoders.generate import Prompt, Sampling, checked_pair, penalties_of
from decoders.inputs import as_tokens
from decoders.penalties import applied
from decoders.prompts import as_prompts, encode
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
    **warping: Unpack[WarpingOptions],
) -> Places: ...  # fmt: skip
@overload
def read(
    pair: ModelPair, prompt: Prompt, text: Sequence[Sequence[TokenId]], *,
    penalties: bool | Sequence[LogitsProcessor] = ..., draft: bool | str = ..., drafted: bool = ...,
    **warping: Unpack[WarpingOptions],
) -> list[Places]: ...  # fmt: skip
def read(
    pair: ModelPair, prompt: Prompt, text: Any = (), *,
    penalties: bool | Sequence[LogitsProcessor] = Sampling.penalties,
    draft: bool | str = True, drafted: bool = False, **warping: Unpack[WarpingOptions],
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
    for model in models:
        _fits(model, len(ids) + max(map(len, texts)))
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
    for tokens, path in zip(texts, paths, strict=True):
        # One text has all rows in order, which need no copy.
        rows: Any = [row[node] for node in path] if several else slice(None)
        places.append(Places(ids, tokens, logits[rows], p[rows], None if q is None else q[rows]))
    return places if several else places[0]


def _fits(model: Model, tokens: int) -> None:
    if model.positions is not None and tokens > model.positions:
        raise InputError(
            f"The prompt and the text, {tokens} tokens together, exceed the {model.positions} "
            f"positions of the {model.name}; shorten them."
        )


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
