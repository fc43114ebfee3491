"""Python outside of the passes: wall time without calls of kernels, by token and by round.

One thread, the embedded pair, texts of 128 tokens at temperature 0. A whole call of `generate`
counts: its checks, tokens, first passes and result too. What each further token or round takes is
told from texts of twice the length.

    OMP_NUM_THREADS=1 python -m tests.speed.outside
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from decoders import Method, catalog, generate, load_pair
from decoders.engine.kernels.loading import kernels

TOKENS, REPEATS = 128, 9
PROMPTS = (
    "Once upon a time",
    "The little dog was sad because",
    "Tom and Anna went to the park. They",
    "One day, a big bear found",
)


class Clock:
    """Adds up the seconds of calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = time.perf_counter()
            found = call(*args)
            self.seconds += time.perf_counter() - began
            return found

        return timed


def main() -> None:
    torch.set_num_threads(1)
    found, clock = kernels(), Clock()
    if found is None:
        sys.exit("There are no kernels here, whose calls are timed.")
    for name in ("run", "passes"):
        setattr(found, name, clock.around(getattr(found, name)))
    pair = load_pair(device="cpu")

    def spent(method: Method, tokens: int) -> tuple[float, float, int]:
        """Seconds of Python, seconds in all, and rounds, of the texts of all prompts."""
        before, began, rounds = clock.seconds, time.perf_counter(), 0
        for prompt in PROMPTS:
            options = {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True}
            rounds += generate(pair, prompt, method, **options).metrics.target_calls
        whole = time.perf_counter() - began
        return whole - (clock.seconds - before), whole, rounds

    print(
        "| decoder | unit | ms of Python (range) | of each further one (range) | ms in all |\n"
        "|---|---|--:|--:|--:|"
    )
    for name, unit, settings in (
        ("greedy", "token", {}),
        *(("speculative", "round", {"draft_length": length}) for length in (2, 3, 4)),
    ):
        python, further, whole, method = [], [], [], catalog[name](**settings)
        for repeat in range(REPEATS + 1):
            short, long = spent(method, TOKENS), spent(method, 2 * TOKENS)
            if repeat:
                python.append(short[0] / short[2])
                further.append((long[0] - short[0]) / (long[2] - short[2]))
                whole.append(short[1] / short[2])
        title = ", ".join([name, *(f"{value} draft tokens" for value in settings.values())])
        print(
            f"| {title} | {unit} | {_ms(python)} | {_ms(further)} | "
            f"{1e3 * statistics.median(whole):.2f} |",
            flush=True,
        )


def _ms(seconds: Sequence[float]) -> str:
    median, least, most = (1e3 * f(seconds) for f in (statistics.median, min, max))
    return f"{median:.3f} ({least:.3f} to {most:.3f})"


if __name__ == "__main__":
    main()
