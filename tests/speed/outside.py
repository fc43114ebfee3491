"""Python outside of the passes: wall time without calls of kernels, by token and by round.

One thread, the embedded pair, texts of 128 tokens at temperature 0.

    OMP_NUM_THREADS=1 python -m tests.speed.outside
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from decoders import catalog, generate, load_pair
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
    for name in ("run", "ahead", "rounds"):
        setattr(found, name, clock.around(getattr(found, name)))
    pair = load_pair(device="cpu")
    print("| decoder | unit | ms of Python (range) | ms in all |\n|---|---|--:|--:|")
    for name, unit, settings in (
        ("greedy", "token", {}),
        *(("speculative", "round", {"draft_length": length}) for length in (2, 3, 4)),
    ):
        python, whole = [], []
        for repeat in range(REPEATS + 1):
            for prompt in PROMPTS:
                before, began = clock.seconds, time.perf_counter()
                result = generate(
                    pair,
                    prompt,
                    catalog[name](**settings),
                    temperature=0.0,
                    max_new_tokens=TOKENS,
                    ignore_eos=True,
                )
                seconds, rounds = time.perf_counter() - began, result.metrics.target_calls
                if repeat:
                    whole.append(1e3 * seconds / rounds)
                    python.append(1e3 * (seconds - clock.seconds + before) / rounds)
        title = ", ".join([name, *(f"{value} draft tokens" for value in settings.values())])
        print(
            f"| {title} | {unit} | {statistics.median(python):.3f} ({min(python):.3f} to "
            f"{max(python):.3f}) | {statistics.median(whole):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
