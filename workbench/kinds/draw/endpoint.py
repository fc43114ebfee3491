"""The endpoint /draw."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from workbench.kinds.draw.study import Draw
from workbench.page.api import answers, offer, plain
from workbench.page.host import Host
from workbench.runs.draws import findings
from workbench.runs.record import Run


def register(host: Host) -> None:
    def draw(
        prompt: str, decoders: list[str], settings: dict[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Continue one prompt with many seeds, and compare the draws with the exact law.

        Each decoder makes 10 to 1,000 draws on the embedded pair. Its own settings stand under its
        name in the settings.

        Args:
            prompt: the text to continue
            decoders: names of the catalog, such as ["multinomial", "speculative", "mtad"]
            settings: draws, max_new_tokens, temperature, top_k, top_p, seed, and those of decoders

        Returns:
            the run as its JSON export has it, with each result's samples
            and findings: for each decoder unlike, p, distance, and the distances of exact draws
        """
        yield from answers(
            host,
            lambda: Draw.from_json({"prompt": prompt, "settings": plain(decoders, settings)}),
            found,
        )

    offer(draw)


def found(run: Run, unkept: str | None = None) -> dict[str, Any]:
    """The run's JSON with the findings of its draws.

    Args:
        run: the run
        unkept: the reason why it could not be kept, if there is one
    """
    data = {
        **run.to_json(),
        **run.study,
        "findings": [{**asdict(each), "unlike": each.unlike} for each in findings(run)],
    }
    return {**data, **({"unkept": unkept} if unkept else {})}
