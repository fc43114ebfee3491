"""A model that runs with its own cache class, one request at a time (PlainModel).

It serves models that packed attention does not model; PlainPasses are its passes over token trees.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from decoders.engine.models.branches import Branches, Path, begins_rewindable, rewindable
from decoders.engine.models.loaded import Loaded, in_eval_mode, undisturbed
from decoders.engine.models.twin import twin
from decoders.engine.protocols import Answer, Layers, Output, Passes, Wants, of_one_pass
from decoders.engine.weights.linear import hasten
from decoders.errors import NotPackedError
from decoders.shapes import NodeId, TokenId
from decoders.tree import TokenTree

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
    def kind(self) -> str:
        """For messages: what its passes are called."""
        return "cached" if self.cached else "plain"

    @property
    def said(self) -> str:
        """For messages: "with its own cache, one token at a time"."""
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
        rewindable: whether its cache can forget its last tokens
        row_bytes: 0, because its cache has no rows in an arena

    Raises:
        InputError: if it has no weights or is not a causal language model, with its name
        NotPackedError: if it takes no cache and should
    """

    packed = False

    @property
    def engine_name(self) -> str:
        """How it runs, and why, for people."""
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
        self.rewindable = not following.cached or begins_rewindable(model)

    def engine(self, rows: int = 0, most_rows: int | None = None) -> Passes:
        return PlainPasses(self)

    def extend(
        self,
        path: Path,
        nodes: Sequence[NodeId],
        tokens: Sequence[TokenId],
        last: int,
        features: Layers = (),
    ) -> tuple[Output, int]:
        """Let the model read on.

        Args:
            path: the text so far, which is extended
            nodes: the nodes to read
            tokens: their tokens
            last: how many of the last nodes need logits
            features: layers whose hidden states are returned for all nodes

        Returns:
            the logits (last, V) with the hidden states, and the number of passes
        """
        at_once = self.following.several or not self.following.cached or not path.nodes
        size = len(tokens) if at_once else 1
        outputs = []
        for begin in range(0, len(tokens), size):
            part = list(tokens[begin : begin + size])
            outputs.append(self._pass(path, part, min(last, size), features))
            path.nodes += nodes[begin : begin + size]
            path.tokens += part
        logits, *states = map(torch.cat, zip(*outputs, strict=True))
        return Output(logits[-last:], tuple(states)), len(outputs)

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
        self._branches: dict[TokenTree, Branches] = {}

    def admit(self, tree: TokenTree, rows: int) -> bool:
        self._branches[tree] = Branches(self.model, tree)
        return True

    def release(self, tree: TokenTree) -> None:
        self._branches.pop(tree, None)

    def rows_of(self, tree: TokenTree) -> int:
        """The number of tokens that the caches of a request hold now, in all its branches."""
        return sum(len(path.nodes) for path in self._branches[tree].paths)

    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        return of_one_pass(list(self._answers(wants, chunk, features)))

    def _answers(self, wants: Wants, chunk: int | None, features: Layers) -> Iterator[Answer]:
        for tree, nodes in wants:
            branches = self._branches[tree]
            branches.settle()
            branches.features = features
            before, part = branches.passes, None
            rows = torch.empty(0, self.model.vocabulary)
            if chunk is None or not branches.read_prompt(chunk):
                rows, part = branches.logits(nodes), slice(0, len(nodes))
                rows = rows if rows.dtype == torch.float64 else rows.float()
            passes = branches.passes - before
            yield Answer(
                rows,
                part,
                branches.bytes,
                # The loop divides the weights of an answer by the requests of its pass, but here
                # each request has separate passes.
                passes * self.model.weight_bytes * len(wants),
                passes=passes,
                features=branches.noted(),
            )
