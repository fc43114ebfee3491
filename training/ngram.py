"""The floor: an interpolated Kneser-Ney model.

Source:
    Chen and Goodman 1999, with one discount per order
"""

import numpy as np

BITS = 12  # of a token id in a packed n-gram; five fit into 64


class KneserNey:
    """A normalised n-gram model over token ids below 4096.

    The highest order counts n-grams; each lower one counts the different tokens that precede.

    Args:
        ids: (T,) token ids to learn from
        vocab_size: number of tokens
        order: tokens of the longest n-gram
    """

    def __init__(self, ids: np.ndarray, vocab_size: int, order: int = 5):
        if vocab_size > 1 << BITS or order * BITS > 64:
            raise ValueError(f"At most {1 << BITS} tokens and {64 // BITS}-grams fit into 64 bits.")
        self.vocab_size, self.order, self.tables = vocab_size, order, []
        keys, counts = np.unique(pack(ids, order), return_counts=True)
        for n in range(order, 0, -1):
            if n < order:
                keys, counts = np.unique(keys & np.uint64((1 << BITS * n) - 1), return_counts=True)
            ones, twos = (counts == 1).sum(), (counts == 2).sum()
            contexts, first, types = np.unique(
                keys >> np.uint64(BITS), return_index=True, return_counts=True
            )
            totals = np.add.reduceat(counts, first)
            discount = ones / max(ones + 2 * twos, 1) or 0.5
            self.tables.insert(0, (keys, counts, contexts, totals, types, discount))

    def log_probs(self, ids: np.ndarray) -> np.ndarray:
        """Natural log-probabilities of ids[order - 1:], each given the order - 1 tokens before it.

        Args:
            ids: (T,) token ids

        Returns:
            (T - order + 1,) float64
        """
        p = np.full(len(ids) - self.order + 1, 1 / self.vocab_size)
        for n, (keys, counts, contexts, totals, types, discount) in enumerate(self.tables, start=1):
            grams = pack(ids[self.order - n :], n)
            count = look_up(keys, counts, grams)
            total = look_up(contexts, totals, grams >> np.uint64(BITS))
            kinds = look_up(contexts, types, grams >> np.uint64(BITS))
            seen = np.maximum(total, 1)
            p = np.where(
                total > 0, (np.maximum(count - discount, 0) + discount * kinds * p) / seen, p
            )
        return np.log(p)


def pack(ids: np.ndarray, n: int) -> np.ndarray:
    """Every run of n ids as one integer, first token highest: (T,) -> (T - n + 1,) uint64."""
    count = len(ids) - n + 1
    out = np.zeros(count, np.uint64)
    for k in range(n):
        out = out << np.uint64(BITS) | ids[k : k + count].astype(np.uint64)
    return out


def look_up(keys: np.ndarray, values: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The values of the (sorted) keys that equal the queries, 0 where none does."""
    at = np.searchsorted(keys, queries).clip(max=len(keys) - 1)
    return np.where(keys[at] == queries, values[at], 0)
