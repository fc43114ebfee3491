"""A model that runs with its own cache class, one request at a time (PlainModel).

It serves models that packed attention does not model. PlainPasses are its passes over token trees,
and ReadPaths the texts of one tree that it has read.
"""

import copy
import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from decoders.engine.fingerprint import twin
from decoders.engine.models.loaded import Loaded, in_eval_mode, undisturbed
from decoders.engine.protocols import (
    Answer,
    Features,
    Layers,
    Passes,
    Wants,
    comparable,
    of_one_pass,
)
from decoders.engine.weights import hasten
from decoders.errors import NotPackedError
from decoders.shapes import NodeId, TokenId
from decoders.tree import TokenTree

# The most tokens of the trunk that are read again with each draft, rather than in a separate pass.
AGAIN = 16


@dataclass(slots=True)
class Path:
    """A text that the model has read.

    Attributes:
        nodes: its nodes from the first on
        tokens: their tokens
        cache: the cache that the model made of them
    """

    nodes: list[NodeId] = field(default_factory=list)
    tokens: list[TokenId] = field(default_factory=list)
    cache: Any = None

    @property
    def tip(self) -> NodeId:
        return self.nodes[-1] if self.nodes else -1

    def copy(self) -> "Path":
        """A copy with its own cache, so that reading on with it does not change the original.

        Layers that never write into their tensors share them with the copy.
        """
        if not isinstance(self.cache, DynamicCache):
            return Path(self.nodes[:], self.tokens[:], copy.deepcopy(self.cache))
        cache, shares = copy.copy(self.cache), (DynamicLayer, DynamicSlidingWindowLayer)
        cache.layers = [
            copy.copy(layer) if type(layer) in shares else copy.deepcopy(layer)
            for layer in cache.layers
        ]
        return Path(self.nodes[:], self.tokens[:], cache)

    def rewind(self, length: int) -> None:
        drop = len(self.nodes) - length
        if drop and isinstance(self.cache, DynamicCache):
            layers: list[Any] = self.cache.layers
            for layer in layers:
                if layer.is_initialized:
                    layer.keys, layer.values = layer.keys[:, :, :-drop], layer.values[:, :, :-drop]
        del self.nodes[length:], self.tokens[length:]
        if not length:
            self.cache = None


def tensors(thing: Any, depth: int = 5) -> Iterator[torch.Tensor]:
    if isinstance(thing, torch.Tensor):
        yield thing
    elif depth:
        parts = vars(thing) if hasattr(thing, "__dict__") else thing
        parts = list(parts.values()) if isinstance(parts, dict) else parts
        for part in parts if isinstance(parts, (list, tuple)) else ():
            yield from tensors(part, depth - 1)


def rewindable(cache: Any) -> bool:
    """Whether a cache holds one row for each token in every layer, and nothing else."""
    return isinstance(cache, DynamicCache) and all(
        type(layer) is DynamicLayer for layer in cache.layers
    )


class ReadPaths:
    """The paths of one request's tree that a plain model has read, each with a separate cache.

    A cache that cannot be rewound is read on in place only along the trunk; below the trunk a copy
    is read on. So one cache always ends in the trunk, and a few accepted tokens are read again from
    there, together with the next draft.

    Args:
        model: the model (`decoders.engine.models.plain.PlainModel`)
        tree: the request's tree

    Attributes:
        paths: what has been read
        passes: the number of passes so far
        features: the layers whose hidden states are noted of everything that is read
        states: these hidden states by node, (H,) for each layer
    """

    def __init__(self, model: Any, tree: TokenTree):
        self.model, self.tree = model, tree
        self.paths = [Path()]
        self.passes = 0
        self.features: Layers = ()
        self.states: dict[NodeId, tuple[torch.Tensor, ...]] = {}

    @property
    def bytes(self) -> int:
        """Bytes of the caches; a tensor that several share counts once."""
        parts = [(t.data_ptr(), t.nbytes) for path in self.paths for t in tensors(path.cache)]
        return sum(dict(sorted(parts)).values())

    def settle(self) -> None:
        """Forget nodes that the tree dropped, and paths that other paths contain."""
        tree, tail = self.tree, set(self.tree.tail)
        paths: dict[NodeId, Path] = {}
        for path in self.paths:
            length = len(path.nodes)
            while length and not (
                path.nodes[length - 1] in tail or tree.in_trunk(path.nodes[length - 1])
            ):
                length -= 1
            if length == len(path.nodes) or self.model.rewindable:
                path.rewind(length)
                paths[path.tip] = path
        below = [path for tip, path in paths.items() if tip in tail]
        contained = below and self.model.rewindable
        above = [] if contained else [path for tip, path in paths.items() if tip not in tail]
        self.paths = [*sorted(above, key=lambda path: len(path.nodes))[-1:], *below]

    def logits(self, wanted: Sequence[NodeId]) -> torch.Tensor:
        """The logits of the wanted nodes, (wanted, V), in as few passes as the branches allow."""
        children = self._unseen(wanted)
        rows: dict[NodeId, torch.Tensor] = {}
        for start in [node for node in children if node < 0 or self._at(node) is not None]:
            path = self._at(start) or self._add(Path())
            if len(path.nodes) > self._depth(start):
                path = self._add(path.copy())
                path.rewind(self._depth(start))
            self._grow(path, children, set(wanted), rows)
        return torch.stack([rows[node] for node in wanted])

    def _add(self, path: Path) -> Path:
        self.paths.append(path)
        return path

    def _depth(self, node: NodeId) -> int:
        return self.tree.depths[node] + 1 if node >= 0 else 0

    def _at(self, node: NodeId) -> Path | None:
        """A path that ends at a node, or goes through it and can be rewound; else None."""
        through = [p for p in self.paths if p.tip == node]
        if not through and self.model.rewindable:
            last = self._depth(node) - 1
            through = [p for p in self.paths if node < 0 or p.nodes[last : last + 1] == [node]]
        return through[0] if through else None

    def _unseen(self, wanted: Sequence[NodeId]) -> dict[NodeId, list[NodeId]]:
        """The children of each node that must be read to reach all wanted nodes."""
        children: dict[NodeId, list[NodeId]] = defaultdict(list)
        reached: set[NodeId] = set()
        for node in wanted:
            while node >= 0 and node not in reached:
                reached.add(node)
                parent = self.tree.parents[node]
                children[parent].append(node)
                if self._at(parent) is not None:
                    break
                node = parent
        return children

    def _grow(
        self, path: Path, children: dict[NodeId, list[NodeId]], wanted: set[NodeId], rows: dict
    ) -> None:
        """Read everything below a path: in place along the last child, in copies along others."""
        anchored = not self.model.rewindable and self._in_trunk(path.tip)
        # A draft is to be read, and only a little of the trunk before it.
        end = self.tree.trunk[-1]
        if anchored and end in children and 0 < self._depth(end) - self._depth(path.tip) <= AGAIN:
            path, anchored = self._add(path.copy()), False
        waiting = [(path, children.get(path.tip, []))]
        while waiting:
            path, heads = waiting.pop()
            # A cache that cannot be rewound stays at the end of the trunk.
            stays = anchored and self._in_trunk(path.tip)
            for head in heads:
                copies = head != heads[-1] or (stays and not self._in_trunk(head))
                mine = self._add(path.copy()) if copies else path
                run = [head]
                while len(children.get(run[-1], ())) == 1 and not (anchored and run[-1] == end):
                    run += children[run[-1]]
                first = next((k for k, node in enumerate(run) if node in wanted), len(run) - 1)
                logits = self._extend(mine, run, len(run) - first)
                rows |= {n: row for n, row in zip(run[first:], logits, strict=True) if n in wanted}
                waiting.append((mine, children.get(run[-1], [])))

    def _in_trunk(self, node: NodeId) -> bool:
        return node < 0 or self.tree.in_trunk(node)

    def _extend(self, path: Path, nodes: list[NodeId], last: int) -> torch.Tensor:
        tokens = [self.tree.tokens[node] for node in nodes]
        outputs = self.model.extend(path, nodes, tokens, last, self.features)
        self.passes += len(outputs)
        logits, *states = map(torch.cat, zip(*outputs, strict=True))
        if states:
            self.states |= dict(zip(nodes, zip(*states, strict=True), strict=True))
        return logits[-last:]

    def noted(self) -> Features | None:
        """The hidden states of all nodes read since the last call; None if there are none."""
        states, self.states = dict(sorted(self.states.items())), {}
        return (
            Features(list(states), tuple(map(torch.stack, zip(*states.values(), strict=True))))
            if states
            else None
        )


# The names under which models take their cache.
CACHES = "cache", "past_key_values", "cache_params", "state"
# Model types that make a cache themselves if they get none.
OWN_CACHES = "reformer", "xlnet", "rwkv", "xlstm"


@dataclass(frozen=True, slots=True)
class Following:
    """How tokens follow a cached text.

    Attributes:
        several: whether a pass takes several tokens; otherwise it takes one, for models that forget
            their state when they get several
        cached: whether the model's own cache is used; otherwise every pass takes the whole text
        attention: the attention of transformers that passes use; None for the one with which the
            model was loaded
    """

    several: bool = True
    cached: bool = True
    attention: str | None = "sdpa"

    @property
    def said(self) -> str:
        if not self.cached:
            return "without a cache, the whole text in each pass"
        return "with its own cache" if self.several else "with its own cache, one token at a time"


def padding_token(model: PreTrainedModel) -> TokenId | None:
    """The token that has no position of its own; None if all tokens have one.

    RoBERTa and similar models count the positions of the other tokens from this id plus 1.
    """
    tables = (getattr(module, "position_embeddings", None) for module in model.modules())
    paddings = (getattr(table, "padding_idx", None) for table in tables)
    return next((padding for padding in paddings if padding is not None), None)


class PlainModel(Loaded):
    """A causal language model that runs as `generate` runs it, on one text after another.

    Args:
        model: the caller's model
        role: "target" or "draft", for messages
        vocabulary: see `PackedModel`
        following: how tokens follow a cached text
        why: the reason why it is not packed, as a clause

    Attributes:
        rewindable: whether its cache can forget its last tokens, as the passes before have shown
        row_bytes: 0, because its cache has no rows in an arena

    Raises:
        InputError: if it has no weights or is not a causal language model, with its name
        NotPackedError: if it takes no cache and should
    """

    packed = False

    @property
    def engine_name(self) -> str:
        return f"{self.following.said}, one request at a time, because {self.why}"

    def __init__(
        self,
        model: PreTrainedModel,
        role: str,
        vocabulary: int | None,
        following: Following,
        why: str,
    ):
        super().__init__(model, role, vocabulary)
        self.following, self.why, self.row_bytes = following, why, 0
        self._padding = padding_token(model)
        if self.positions is not None and self._padding is not None:
            self.positions -= self._padding + 1
        self._twin = model
        if following.attention is not None:
            self._twin = twin(model, following.attention)
            hasten(self._twin)
        taken = inspect.signature(model.forward).parameters
        self._cache_name = next((name for name in CACHES if name in taken), "")
        if following.cached and not self._cache_name:
            raise NotPackedError("it takes no cache")
        self.rewindable = not following.cached

    def engine(self, rows: int = 0, most_rows: int | None = None) -> Passes:
        return PlainPasses(self)

    def extend(
        self,
        path: Path,
        nodes: Sequence[NodeId],
        tokens: Sequence[TokenId],
        last: int,
        features: Layers = (),
    ) -> list[tuple[torch.Tensor, ...]]:
        """Let the model read on.

        Args:
            path: the text so far, which is extended
            nodes: the nodes to read
            tokens: their tokens
            last: how many of the last nodes need logits
            features: layers whose hidden states are returned for all nodes

        Returns:
            of each pass the logits of its last tokens, (n, V), and the hidden states of all, (m, H)
        """
        at_once = self.following.several or not self.following.cached or not path.nodes
        size = len(tokens) if at_once else 1
        outputs = []
        for begin in range(0, len(tokens), size):
            part = list(tokens[begin : begin + size])
            outputs.append(self._pass(path, part, min(last, size), features))
            path.nodes += nodes[begin : begin + size]
            path.tokens += part
        return outputs

    def _pass(
        self, path: Path, tokens: list[TokenId], last: int, features: Layers
    ) -> tuple[torch.Tensor, ...]:
        options: dict[str, Any] = {"use_cache": self.following.cached}
        if self.following.cached:
            if path.cache is None and self.model.config.model_type not in OWN_CACHES:
                path.cache = DynamicCache(config=self.model.config.get_text_config(decoder=True))
            options[self._cache_name] = path.cache
        options |= {"logits_to_keep": last} if self.keeps else {}
        options |= {"output_hidden_states": True} if features else {}
        input_ids = self._fed(tokens if self.following.cached else path.tokens + tokens)
        if self._padding is not None and self.following.cached:
            # By default the model would count all cached tokens, padding included.
            written = self._fed(path.tokens + tokens) != self._padding
            positions = written.cumsum(-1) * written + self._padding
            options["position_ids"] = positions[:, -len(tokens) :]
        with undisturbed(self.device), in_eval_mode(self._twin):
            out = self._twin(input_ids=input_ids, **options)
        if self.following.cached:
            path.cache = out[self._cache_name]
            self.rewindable = rewindable(path.cache)
        logits = self.over_vocabulary(out.logits[0, -last:])
        return logits, *(out.hidden_states[layer][0, -len(tokens) :] for layer in features)

    def _fed(self, tokens: Sequence[TokenId]) -> torch.Tensor:
        """The tokens (1, tokens) as the model gets them: token 0 replaces those that it lacks."""
        return torch.tensor([[t if t < self.own else 0 for t in tokens]], device=self.device)


class PlainPasses(Passes):
    def __init__(self, model: PlainModel):
        self.model = model
        self._branches: dict[TokenTree, ReadPaths] = {}

    def admit(self, tree: TokenTree, rows: int) -> bool:
        self._branches[tree] = ReadPaths(self.model, tree)
        return True

    def release(self, tree: TokenTree) -> None:
        self._branches.pop(tree, None)

    def rows_of(self, tree: TokenTree) -> int:
        return sum(len(path.nodes) for path in self._branches[tree].paths)

    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        return of_one_pass(list(self._answers(wants, features)))

    def _answers(self, wants: Wants, features: Layers) -> Iterator[Answer]:
        for tree, nodes in wants:
            branches = self._branches[tree]
            branches.settle()
            branches.features = features
            before, rows = branches.passes, branches.logits(nodes)
            passes = branches.passes - before
            yield Answer(
                comparable(rows),
                slice(0, len(nodes)),
                branches.bytes,
                # The loop divides the weights of an answer by the requests of its pass, but here
                # each request has separate passes.
                passes * self.model.weight_bytes * len(wants),
                passes=passes,
                features=branches.noted(),
            )
