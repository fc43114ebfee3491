"""The package's glossary of dimensions and its tensor aliases.

| word | meaning |
|---|---|
| nodes | tree nodes of one request that a model was asked about, in the order of the ask |
| tokens | packed tokens of one forward pass: those of all its requests, one after another |
| rows | cache rows; a row holds the keys and values of one node in one layer |
| W | beams (a multiset: equal beams are separate entries) |
| V | vocabulary size |
| H, K | query heads, key-value heads |
| D | head dimension |
"""

from collections.abc import Callable

from torch import Tensor

Logits = Tensor  # (nodes, V), float32 or float64, raw: before temperature and truncation
Probs = Tensor  # (..., V), each row sums to one

# From texts (1, tokens), prompt included, and the logits (1, V) of the token after each, to the
# logits that replace them.
Penalties = Callable[[Tensor, Tensor], Tensor]

NodeId = int  # index into a TokenTree; parents have lower ids than their children
TokenId = int
