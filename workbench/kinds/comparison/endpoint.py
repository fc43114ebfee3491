"""The endpoint /compare."""

from collections.abc import Iterator
from typing import Any

from workbench.kinds.comparison.study import Comparison
from workbench.page.api import answers, asked, offer
from workbench.page.host import Host
from workbench.runs.estimates import rows, times_greedy
from workbench.runs.record import Run


def register(host: Host) -> None:
    def compare(
        prompt: str, decoders: list[str], settings: dict[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Decode one prompt with several decoders on the embedded pair, and compare them.

        They run one after another. A decoder's own settings stand under its name in the settings.

        Args:
            prompt: the text to continue
            decoders: names of the catalog, such as ["greedy", "speculative", "mtad"]
            settings: max_new_tokens, temperature, top_k, top_p, seed, repeats, those of decoders

        Returns:
            the run as its JSON export has it, with prompt and settings
            and each result's text, tokens, rounds and metrics
        """
        yield from answers(host, lambda: Comparison(prompt, asked(decoders, settings)), answer)

    offer(compare)


def answer(run: Run, unkept: str | None = None) -> dict[str, Any]:
    """The run's JSON with the additions of version 1: prompt, settings, and each result's sample.

    Args:
        run: the run
        unkept: the reason why it could not be kept, if there is one
    """
    data = run.to_json()
    x_greedy = {
        id(r): times_greedy(r, g)
        for row in rows(run.results)
        for r, g in zip(row.results, row.greedy, strict=True)
    }
    for result, plain in zip(run.results, data["results"], strict=True):
        plain |= {**plain["samples"][0], "error": result.error, "x_greedy": x_greedy[id(result)]}
    return {**data, **run.study, **({"unkept": unkept} if unkept else {})}
