"""From what requests want to feed to the tensors of one pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from decoders.engine.attention import Packing
from decoders.engine.cache import Arena, CacheRows
from decoders.shapes import NodeId
from decoders.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Feed:
    """One request's part of a pass: the nodes to feed, parents first, and those of them whose logits are wanted."""

    tree: TokenTree
    cache: CacheRows
    nodes: list[NodeId]
    wanted: list[NodeId]

    @property
    def is_prefill(self) -> bool:
        return self.nodes[0] < self.tree.prompt_length


@dataclass(frozen=True, slots=True)
class PackedInputs:
    """The tensors of one pass: input_ids and positions (1, tokens), wanted (n,) indices into the tokens.

    A lone index in `wanted`, and a lone segment, has a companion without meaning where there are several tokens.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    wanted: torch.Tensor
    packing: Packing


def missing_ancestors(tree: TokenTree, cache: CacheRows, wanted: Sequence[NodeId]) -> list[NodeId]:
    """The wanted nodes and all their ancestors that have no row yet, parents first."""
    found: set[NodeId] = set()
    for node in wanted:
        while node >= 0 and node not in cache.row and node not in found:
            found.add(node)
            node = tree.parents[node]
    return sorted(found)


def pack(feeds: Sequence[Feed], arena: Arena, padded: bool = False) -> PackedInputs:
    """Lay the feeds one after the other and give their tokens cache rows.

    padded: every feed but those of prompts is filled up to the longest with tokens that are computed and attend like any other;
    no token sees them, and their rows are free again after the pass.
    """
    device = arena.keys[0].device
    longest = max((len(f.nodes) for f in feeds if padded and not f.is_prefill), default=0)
    tokens: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    wanted: list[int] = []
    segments: list[tuple[int, int, int, int, int]] = []
    masks: list[np.ndarray] = []
    mask_size = 0
    for feed in feeds:
        start, past = len(tokens), len(feed.cache)
        pads = 0 if feed.is_prefill else max(0, longest - len(feed.nodes))
        arena.make_room(feed.cache, len(feed.nodes) + pads)
        mask = feed.cache.append(feed.tree, feed.nodes)
        if mask is not None and pads:
            # Pads come last and see everything; nothing sees them.
            mask = np.pad(mask, ((0, pads), (0, pads)))
            mask[-pads:] = True
        tokens += [feed.tree.tokens[n] for n in feed.nodes] + [0] * pads
        positions += [feed.tree.depths[n] for n in feed.nodes] + [feed.tree.depths[feed.nodes[-1]]] * pads
        first = feed.cache.base + past
        rows += range(first, first + len(feed.nodes) + pads)
        wanted += [start + feed.cache.row[n] - past for n in feed.wanted]
        segments.append((start, len(tokens), feed.cache.base, past, -1 if mask is None else mask_size))
        if mask is not None:
            masks.append(mask.ravel())
            mask_size += mask.size
    # Compiled passes treat sizes of 0 and 1 as graphs of their own: only the number of tokens may be 1.
    if len(tokens) > 1:
        wanted += wanted[:1] * (len(wanted) == 1)
        segments += [(len(tokens), len(tokens), 0, 0, -1)] * (len(segments) == 1)
    flat = torch.from_numpy(np.concatenate(masks)) if masks else torch.zeros(2, dtype=torch.bool)
    table = [(start, base, past + stop - start, mask) for start, stop, base, past, mask in segments]
    packing = Packing(
        torch.tensor(rows, device=device),
        torch.tensor(segments),
        torch.from_numpy(np.array([*table, (len(tokens), 0, 0, -1)], dtype=np.int32).T.copy()).to(device),
        flat.to(device),
        arena.keys,
        arena.values,
    )
    return PackedInputs(
        torch.tensor([tokens], device=device),
        torch.tensor([positions], device=device),
        torch.tensor(wanted, device=device),
        packing,
    )
