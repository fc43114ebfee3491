"""The figures of a batch's results as readers see them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from workbench.runs.figures import (
    Row,
    mean_times_greedy,
    number,
    speed,
    timed_speed,
    timed_times_greedy,
    times_greedy,
)
from workbench.runs.record import Result
from workbench.show.quantities import (
    BY_NAME,
    Quantity,
    megabytes,
    metric,
    percent,
    significant,
    times,
)


def _over_repeats(
    value: Callable[[Result, Result | None], float | None],
    gather: Callable[[Sequence[float]], float],
) -> Callable[[Row], float | None]:
    def together(row: Row) -> float | None:
        values = [v for r in row.results if (v := value(r, None)) is not None]
        return gather(values) if values else None

    return together


def _differing(result: Result, _: Result | None) -> float | None:
    """Outputs that differ from their reference; 0 for the first result of a law, which has none."""
    if result.error:
        return None
    return result.agreement.differing if result.agreement else 0


PADDING = Quantity(
    "padding", "padding", "pads / longest acceptance of a round, mean",
    metric("padding_ratio"), percent, better="lower",
)  # fmt: skip
BATCH_QUANTITIES = (
    replace(BY_NAME["speed"], help="new tokens of all requests / seconds of computing"),
    replace(
        BY_NAME["x_greedy"], help="tokens/s divided by greedy's at the same batch size",
        together=mean_times_greedy,
    ),
    Quantity(
        "decoding", "decoding",
        "tokens/s without each batch's first round, which reads the prompts",
        lambda r, _: speed(r, decoding=True), significant, better="higher",
        timed=lambda r, _: timed_speed(r, decoding=True),
    ),
    Quantity(
        "decoding_x_greedy", "decoding × greedy",
        "speed of decoding divided by greedy's at the same batch size",
        lambda r, greedy: times_greedy(r, greedy, decoding=True), times, better="higher",
        together=lambda row: mean_times_greedy(row, decoding=True),
        timed=lambda r, greedy: timed_times_greedy(r, greedy, decoding=True),
        over_greedy=True,
    ),
    PADDING,
    Quantity(
        "pad_tokens", "pad tokens", "tokens that both models computed only as padding",
        metric("padded_tokens"), "{:,}".format, better="lower",
        together=lambda row: number(row.first, "padded_tokens"),
    ),
    Quantity(
        "pad_rows", "pad rows", "cache rows that both models kept only as padding",
        metric("padded_rows"), "{:,}".format, better="lower",
        together=lambda row: number(row.first, "padded_rows"),
    ),
    Quantity(
        "at_once", "at once",
        "most requests in flight; fewer than the batch if a memory budget makes some wait",
        metric("at_once"), "{:g}".format, together=_over_repeats(metric("at_once"), max),
    ),
    Quantity(
        "peak_memory", "cache", "largest cache of a single request, of one model",
        metric("peak_cache_bytes"), megabytes, better="lower",
        together=_over_repeats(metric("peak_cache_bytes"), max),
    ),
    Quantity(
        "same", "same", "whether the output equals the first scheme's",
        _differing, lambda n, more=0: f"{n:g} differ" if n else "yes",
        together=_over_repeats(_differing, sum),
    ),
    BY_NAME["joules_per_token"],
)  # fmt: skip
