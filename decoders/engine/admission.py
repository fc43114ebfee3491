"""The check that admits a model: its passes over cached rows must give the distributions of passes over whole texts."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from decoders.engine.engines import Model, engine_of
from decoders.engine.model import Engine, PackedModel, undisturbed
from decoders.engine.probe import Layout, layout_of
from decoders.engine.twin import twin
from decoders.errors import InputError, NotPackedError, first_line
from decoders.shapes import NodeId
from decoders.tree import TokenTree

PROMPTS = 70, 3, 20  # tokens: one is longer than a block of keys of any kernel
DEEPEST = 8  # tokens after a prompt
REDUCED = 24  # tokens: windows and chunks of the check are no larger, so that its prompts go beyond them
ASKED = 12  # of a prompt's tokens, the last: whose rows are compared
SIZES = "sliding_window", "attention_chunk_size"  # settings of windows and chunks
RULED_OUT = -1e4  # nats; some models give tokens that are none of text the least number there is
# About twenty times what was seen of deep and shallow models, dense and of experts.
TOLERANCE = {torch.float64: 3e-5, torch.float32: 3e-5, torch.float16: 0.05, torch.bfloat16: 0.1}


def agrees_with_plain_pass(model: Model) -> None:
    """Raise NotPackedError unless passes over cached rows give what passes over whole texts give: some models fail silently. Raise
    InputError if those give no numbers.

    The latter take the "eager" attention: it does all that the architecture asks for ("sdpa" has no soft-capping), though its
    softmax is never finer than float32. More than half of the rows of each request in each pass must agree: a few tokens that rounding
    sends to another expert do no harm, and a wrong mask, position or cached row shows.
    """
    try:
        kind = "plain"
        whole, layout = whole_texts(model)
        kind = "packed" if model.packed else "cached"
        answers = list(cached_rows(model, layout))
        kind = "plain"
        plain = plain_rows(model, whole, answers)
    except (MemoryError, torch.OutOfMemoryError, NotPackedError):
        raise
    except Exception as error:  # foreign code can fail in any way
        raise NotPackedError(f"it fails in a {kind} forward pass ({first_line(error)})") from None
    if all(row.isnan().any() for row in plain.values()):
        raise InputError(f"The {model.name} gives logits that are not numbers; check its weights and its dtype.")
    dtype = precision(model)
    for tree, rows in answers:
        agreeing = [agree(row, plain[tree, node], dtype) for node, row in rows.items()]
        if 2 * sum(agreeing) <= len(agreeing):
            raise NotPackedError("it does not give the logits of a pass over the whole text")


def precision(model: Model) -> torch.dtype:
    """The dtype that products of a pass are rounded like: TF32 has float16's digits, and may be switched on for float32."""
    backend = torch.backends.cuda if model.device.type == "cuda" else torch.backends.mkldnn
    rounded = {"tf32": torch.float16, "bf16": torch.bfloat16}.get(backend.matmul.fp32_precision, torch.float32)
    return rounded if model.dtype == torch.float32 else model.dtype


def agree(row: Tensor, plain: Tensor, dtype: torch.dtype) -> bool:
    """Whether two rows of logits (V,) are one distribution but for the rounding of products in `dtype`.

    The distance of their log-probabilities is compared with how far the plain ones are from their mean: an offset of all logits does
    not count, apart from the rounding it causes. Tokens that the plain row rules out are left out.
    """
    ours, plain = row.double(), plain.double()
    rounding = torch.finfo(dtype).eps * plain[plain > RULED_OUT].norm()
    log_p, log_q = plain.log_softmax(-1), ours.log_softmax(-1)
    possible = log_p > RULED_OUT
    log_p, log_q = log_p[possible], log_q[possible]
    allowed = TOLERANCE[dtype] * (log_p - log_p.mean()).norm() + rounding
    return bool((log_p - log_q).norm() <= allowed)


def whole_texts(model: Model) -> tuple[PreTrainedModel, list[Layout] | None]:
    """The model that takes whole texts, and the layout of cached passes if it is not the model's own.

    Windows and chunks too large for the check's prompts are made small in both. Raises NotPackedError if its config does not do that.
    """
    own = model.model
    if not getattr(own, "_supports_attention_backend", False):
        return own, None
    whole = twin(own, "eager")
    packed: Any = model  # or a draft with a tokenizer of its own, which has what its model has
    if not (packed.packed and any(reach and reach.size > REDUCED for reach in packed.reaches)):
        return whole, None
    config = whole.config.get_text_config()
    for name in SIZES:
        if isinstance(size := getattr(config, name, None), int):
            setattr(config, name, min(size, REDUCED))
    small = [
        replace(layer, reach=layer.reach and replace(layer.reach, size=min(layer.reach.size, REDUCED)))
        for layer in packed.layout
    ]
    if layout_of(whole, model.positions) != small:
        raise NotPackedError("its windows cannot be made small to test it")
    return whole, small


def cached_rows(
    model: Model, layout: Sequence[Layout] | None = None
) -> Iterator[tuple[TokenTree, dict[NodeId, Tensor]]]:
    """What four passes answer three requests: prompts; single tokens; two children each; a tree, a fork and a single token.

    These are chains and trees, short and long, so every way to attend has run before anything is decoded.
    """
    most = model.positions or max(PROMPTS) + DEEPEST
    engine = engine_of(model) if layout is None else Engine(cast(PackedModel, model), layout=layout)
    draw, tokens = random.Random(0), range(min(model.own, model.vocabulary))
    trees = [TokenTree(draw.choices(tokens, k=max(1, min(n, most - DEEPEST)))) for n in PROMPTS]
    for tree in trees:
        engine.admit(tree, len(tree.trunk) + DEEPEST)

    def grow(tree: TokenTree, count: int) -> list[NodeId]:
        """Up to `count` nodes below the tip, two of them its children."""
        tips = [tree.trunk[-1]]
        for i in range(count):
            parent = tips[0] if i < 2 else draw.choice(tips[-6:])
            if tree.depths[parent] + 1 < min(most, tree.prompt_length + DEEPEST):
                tips.append(tree.add(parent, draw.choice(tokens)))
        return list(dict.fromkeys(tips[1:]))

    for sizes in ((), (1, 1, 1), (2, 2, 2), (2, 20, 1)):
        asked = map(grow, trees, sizes) if sizes else (tree.trunk[-ASKED:] for tree in trees)
        wants = [(tree, nodes) for tree, nodes in zip(trees, asked, strict=True) if nodes]
        for (tree, nodes), answer in zip(wants, engine.run(wants) if wants else (), strict=True):
            assert answer.part is not None  # without a chunk every node is fed
            yield tree, dict(zip(nodes, answer.rows[answer.part], strict=True))
            tree.keep(nodes[-1:])


def plain_rows(
    model: Model, whole: PreTrainedModel, answers: Iterable[tuple[TokenTree, dict[NodeId, Tensor]]]
) -> dict[tuple[TokenTree, NodeId], Tensor]:
    """The logits (V,) of the same nodes by plain passes over the whole text of each, those of one length together."""
    asked: dict[TokenTree, set[NodeId]] = defaultdict(set)
    for tree, rows in answers:
        asked[tree].update(rows)
    texts: dict[int, list[tuple[TokenTree, list[NodeId]]]] = defaultdict(list)
    for tree, nodes in asked.items():
        inner = {tree.parents[node] for node in nodes}
        for path in (tree.lineage(node) for node in nodes - inner):
            texts[len(path)].append((tree, path))
    found: dict[tuple[TokenTree, NodeId], Tensor] = {}
    last = {"logits_to_keep": ASKED + DEEPEST} if model.keeps else {}
    with undisturbed(model.device):
        for alike in texts.values():
            ids = torch.tensor([[tree.tokens[n] for n in path] for tree, path in alike], device=model.device)
            logits = model.over_vocabulary(whole(input_ids=ids, use_cache=False, **last).logits)
            for (tree, path), rows in zip(alike, logits, strict=True):
                found |= {(tree, n): row for n, row in zip(path[-len(rows) :], rows, strict=True) if n in asked[tree]}
    return found
