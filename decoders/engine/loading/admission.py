"""The choice of an engine: packed passes if they are right, else the model's own cache.

Cached passes must agree with passes over whole texts. A model that neither runs right is refused.
"""

import logging
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from decoders.devices import device_of
from decoders.engine.cache import Layout
from decoders.engine.fingerprint import TrialLog, patched, twin
from decoders.engine.models.loaded import undisturbed
from decoders.engine.models.packed import PackedModel, layout_of
from decoders.engine.models.plain import Following, PlainModel
from decoders.engine.passes import PackedPasses
from decoders.errors import InputError, NotPackedError, first_line
from decoders.shapes import NodeId
from decoders.tree import TokenTree

PROMPTS = 70, 3, 20  # tokens: one is longer than a block of keys of any kernel
DEEPEST = 10  # tokens after a prompt
# Trees below a node, by the places of their nodes' parents; 0 is the node itself.
CHAIN, SINGLE, FORK = (0, 1, 2, 3), (0,), (0, 0)
BUSH = 0, 0, 1, 3, 0, 2, 5, 5, 6, 6, 8, 8, 11, 9, 13, 11, 13, 13, 13, 18
# Tokens: windows and chunks of the check are no larger, so that its prompts go beyond them.
REDUCED = 24
ASKED = 12  # the last tokens of a prompt, whose rows are compared
SIZES = "sliding_window", "attention_chunk_size"  # settings of windows and chunks
# Nats: some models give tokens that are not text the least number there is.
RULED_OUT = -1e4
# About twenty times the errors of deep and shallow models, dense ones and mixtures of experts.
TOLERANCE = {torch.float64: 3e-5, torch.float32: 3e-5, torch.float16: 0.05, torch.bfloat16: 0.1}
# So many times that in single rows: a loop of layers (hrm_text) amplifies rounding to eight times,
# a wrong step of a state (zamba2) is a hundred times that, a forgotten state 20,000 times.
FARTHEST = {torch.float64: 10, torch.float32: 10, torch.float16: 1, torch.bfloat16: 1}


def agrees_with_plain_pass(model: PackedModel | PlainModel) -> None:
    """Check that passes over cached rows give what passes over whole texts give.

    Some models fail at this silently. Whole texts take the "eager" attention: it does all that the
    architecture asks for ("sdpa" has no soft-capping), though its softmax is never finer than
    float32. More than half of the rows of each request in each pass must agree: a few tokens that
    rounding sends to another expert do no harm, and a wrong mask, position or cached row shows.
    Of a model that is not packed and has no experts, no row may be far off (FARTHEST), and that is
    enough: a state that some passes forget shows in their rows alone.

    Args:
        model: the prepared model

    Raises:
        NotPackedError: if they differ, or a pass fails
        InputError: if passes over whole texts give no numbers
    """
    try:
        whole, layout = whole_texts(model)
        answers = list(cached_rows(model, layout))
        plain = plain_rows(model, whole, answers)
    except (MemoryError, torch.OutOfMemoryError, NotPackedError):
        raise
    except Exception as error:  # the model's code can fail in any way
        raise NotPackedError(f"it fails in a forward pass ({first_line(error)})") from None
    if all(row.isnan().any() for row in plain.values()):
        raise InputError(
            f"The {model.name} gives logits that are not numbers; check its weights and its dtype."
        )
    dtype = precision(model)
    strict = isinstance(model, PlainModel) and not has_experts(model.model)
    for tree, rows in answers:
        times = FARTHEST[dtype] if strict else 1
        same = [agree(row, plain[tree, node], dtype, times) for node, row in rows.items()]
        if not all(same) if strict else 2 * sum(same) <= len(same):
            raise NotPackedError("it does not give the logits of a pass over the whole text")


def precision(model: PackedModel | PlainModel) -> torch.dtype:
    """The dtype like which the products of a pass are rounded.

    TF32, which may be switched on for float32, has float16's digits.
    """
    if model.dtype != torch.float32:
        return model.dtype
    rounded = {"tf32": torch.float16, "bf16": torch.bfloat16}
    return rounded.get(device_of(model.device).products(), torch.float32)


def has_experts(model: torch.nn.Module) -> bool:
    """Whether a router chooses among parts of a layer, where rounding may decide a near tie."""
    return any(
        "expert" in name.lower() or re.search("expert|moe", type(module).__name__.lower())
        for name, module in model.named_modules()
    )


def agree(row: torch.Tensor, plain: torch.Tensor, dtype: torch.dtype, times: float = 1) -> bool:
    """Whether two rows of logits (V,) are one distribution but for rounding in `dtype`.

    The distance of their log-probabilities is compared with how far the plain ones are from their
    mean. An offset of all logits does not count, apart from the rounding that it causes. Tokens
    that the plain row rules out are left out.
    """
    ours, plain = row.double(), plain.double()
    rounding = torch.finfo(dtype).eps * plain[plain > RULED_OUT].norm()
    log_p, log_q = plain.log_softmax(-1), ours.log_softmax(-1)
    possible = log_p > RULED_OUT
    log_p, log_q = log_p[possible], log_q[possible]
    allowed = times * TOLERANCE[dtype] * (log_p - log_p.mean()).norm() + rounding
    return bool((log_p - log_q).norm() <= allowed)


def whole_texts(model: PackedModel | PlainModel) -> tuple[PreTrainedModel, list[Layout] | None]:
    """The model that takes whole texts, and the layout of cached passes if it is not the model's.

    Windows and chunks that are too large for the check's prompts are made small in both. Raises
    NotPackedError if the config cannot make them small.
    """
    if not getattr(model.model, "_supports_attention_backend", False):
        return model.model, None
    whole = twin(model.model, "eager")
    packed: Any = model
    if not (packed.packed and any(reach and reach.size > REDUCED for reach in packed.reaches)):
        return whole, None
    config = whole.config.get_text_config()
    for name in SIZES:
        if isinstance(size := getattr(config, name, None), int):
            setattr(config, name, min(size, REDUCED))
    small = [
        replace(
            layer, reach=layer.reach and replace(layer.reach, size=min(layer.reach.size, REDUCED))
        )
        for layer in packed.layout
    ]
    if layout_of(whole, model.positions) != small:
        raise NotPackedError("its windows cannot be made small to test it")
    return whole, small


def cached_rows(
    model: PackedModel | PlainModel, layout: Sequence[Layout] | None = None
) -> Iterator[tuple[TokenTree, dict[NodeId, torch.Tensor]]]:
    """Yield what five passes answer three requests.

    The passes have prompts; a chain each, of which two tokens are kept; single tokens; two children
    each; a tree, a fork and a single token. Short and long, so every way to attend has run before
    anything is decoded. From eight tokens on, the vocabulary decides about tokens alone: shapes
    that depended on it made a model right or wrong by chance.
    """
    most = model.positions or max(PROMPTS) + DEEPEST
    engine = (
        model.engine() if layout is None else PackedPasses(cast(PackedModel, model), layout=layout)
    )
    draw, size = random.Random(0), min(model.own, model.vocabulary)
    trees = [
        TokenTree(draw.choices(range(size), k=max(1, min(n, most - DEEPEST)))) for n in PROMPTS
    ]
    for tree in trees:
        engine.admit(tree, len(tree.trunk) + DEEPEST)

    def grow(tree: TokenTree, parents: Sequence[int]) -> list[NodeId]:
        first = defaultdict[NodeId, int](lambda: draw.randrange(size))
        nodes = [tree.trunk[-1]]
        for place in parents:
            parent = nodes[place]
            if tree.depths[parent] + 1 < min(most, tree.prompt_length + DEEPEST):
                nodes.append(tree.add(parent, first[parent]))
                # Equal tokens would be one child.
                first[parent] = (first[parent] + 1) % size
            else:
                nodes.append(parent)
        return list(dict.fromkeys(node for node in nodes[1:] if node != nodes[0]))

    for shapes in (None, (CHAIN,) * 3, (SINGLE,) * 3, (FORK,) * 3, (FORK, BUSH, SINGLE)):
        nodes_of = map(grow, trees, shapes) if shapes else (tree.trunk[-ASKED:] for tree in trees)
        wants = [(tree, nodes) for tree, nodes in zip(trees, nodes_of, strict=True) if nodes]
        for (tree, nodes), answer in zip(wants, engine.run(wants) if wants else (), strict=True):
            assert answer.part is not None  # without a chunk every node is fed
            yield tree, dict(zip(nodes, answer.rows[answer.part], strict=True))
            tree.keep(nodes[:2][-1:] if shapes and shapes[0] is CHAIN else nodes[-1:])


def plain_rows(
    model: PackedModel | PlainModel,
    whole: PreTrainedModel,
    answers: Iterable[tuple[TokenTree, dict[NodeId, torch.Tensor]]],
) -> dict[tuple[TokenTree, NodeId], torch.Tensor]:
    """The logits (V,) of the same nodes by passes over whole texts; equal lengths share a pass."""
    wanted: dict[TokenTree, set[NodeId]] = defaultdict(set)
    for tree, rows in answers:
        wanted[tree].update(rows)
    texts: dict[int, list[tuple[TokenTree, list[NodeId]]]] = defaultdict(list)
    for tree, nodes in wanted.items():
        for path in map(tree.lineage, nodes - {tree.parents[node] for node in nodes}):
            texts[len(path)].append((tree, path))
    logits_of: dict[tuple[TokenTree, NodeId], torch.Tensor] = {}
    last = {"logits_to_keep": ASKED + DEEPEST} if model.keeps else {}
    with undisturbed(model.device):
        for alike in texts.values():
            ids = torch.tensor(
                [[tree.tokens[n] for n in path] for tree, path in alike], device=model.device
            )
            out = whole(input_ids=ids, use_cache=False, **last)
            for (tree, path), rows in zip(alike, model.over_vocabulary(out.logits), strict=True):
                logits_of |= {
                    (tree, n): row
                    for n, row in zip(path[-len(rows) :], rows, strict=True)
                    if n in wanted[tree]
                }
    return logits_of


log = logging.getLogger("decoders")
ADMISSION = "packed passes agree with passes over whole texts"


def prepared(
    model: PreTrainedModel,
    role: str,
    vocabulary: int | None = None,
    passes: str = "program",
    trials: TrialLog | None = None,
) -> PackedModel | PlainModel:
    """Prepare and test a model.

    It is packed if that is right; otherwise it runs plainly, in the quickest way of following a
    cached text that is right.

    Args:
        model: the caller's model
        role: "target" or "draft", for messages
        vocabulary: see `PackedModel`
        passes: how it runs if it is packed
        trials: those that it has passed before

    Raises:
        InputError: in one sentence that names the model, if no way is right
    """
    config = model.config
    name = f"{role} model {config.name_or_path or type(model).__name__} ({config.model_type})"
    try:
        packed = PackedModel(model, role, vocabulary, passes, trials=trials)
        if trials is not None and trials.passed(ADMISSION):
            return packed.ready()
        agrees_with_plain_pass(packed)
        if trials is not None:
            trials.note(ADMISSION)
        return packed
    except NotPackedError as error:
        why = str(error)
    for following in followings(model):
        try:
            plain = PlainModel(model, role, vocabulary, following, why)
            agrees_with_plain_pass(plain)
            log.warning("The %s runs %s.", name, plain.engine_name)
            return plain
        except NotPackedError as error:
            last = f"{following.said}, {error}"
    refuse_broken(model, name)
    patch = patched(model)
    also = f"; {patch}, which may be the reason: take it out" if patch else ""
    raise InputError(f"The {name} cannot be run: packed, {why}; {last}{also}.")


def refuse_broken(model: PreTrainedModel, name: str) -> None:
    """Raise InputError, which says why, if a model does not even run by itself.

    Args:
        model: the caller's model, which no way of running it serves
        name: its role, name and type
    """
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    try:
        with undisturbed(model.device):
            out = model(input_ids=ids, use_cache=False)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    # The model's code can fail in any way.
    except Exception as error:
        floating = (p.dtype for p in model.parameters() if p.is_floating_point())
        dtypes = sorted({str(dtype).removeprefix("torch.") for dtype in floating})
        mend = (
            f"its weights are of {' and '.join(dtypes)}, so bring them to one dtype, as "
            f"model.to(torch.{dtypes[0]})"
            if len(dtypes) > 1
            else "mend its config, its weights or its code"
        )
        raise InputError(
            f"The {name} cannot be run: its own pass over a text, without any decoder, fails "
            f"({first_line(error).rstrip('.')}); {mend}."
        ) from None
    if not hasattr(out, "logits"):
        raise InputError(
            f"The {name} cannot be run: its pass gives no logits; load a causal language model, "
            "with AutoModelForCausalLM."
        )


def followings(model: PreTrainedModel) -> Iterator[Following]:
    """The ways of following a cached text that are tried, the quickest first."""
    attentions: list[str | None] = [None]
    if getattr(model, "_supports_attention_backend", False):
        attentions = ["sdpa", "eager"] if getattr(model, "_supports_sdpa", False) else ["eager"]
    for several, cached in ((True, True), (False, True), (True, False)):
        for attention in attentions:
            yield Following(several, cached, attention)
