"""Iterating in one and the same thread, whoever asks."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
END = object()


def steadily(thread: ThreadPoolExecutor, make: Callable[[], Iterator[Item]]) -> Iterator[Item]:
    """What the iterator that `make` gives yields; it is made, run and closed in the executor's one thread.

    Each thread that computes gets a pool of OpenMP workers of its own, and as soon as there are more workers than cores none of
    them waits by spinning any more: decoding a small model then takes more than twice as long. So models are loaded and run in
    one thread, whichever of Gradio's threads asks.
    """
    items = thread.submit(make).result()
    try:
        while (item := thread.submit(next, items, END).result()) is not END:
            yield item
    finally:
        thread.submit(items.close).result()
