"""The one documented endpoint, `/compare`: the page's job for a program."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.measuring.session import Ended
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.studies.settings import Settings


def add_endpoint(host: Host) -> None:
    # Gradio hands the docstring, in this form of its own, to the pages of the API and to agents (MCP).
    def compare(prompt: str, decoders: list[str], settings: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Decode one prompt with several decoders on the embedded pair, one after another, and compare them.

        Args:
            prompt: the text to go on with
            decoders: names of the catalog, such as ["greedy", "speculative", "mtad"]
            settings: max_new_tokens, temperature, top_k, top_p, seed, repeats; and under a decoder's name its own settings
        Returns:
            the run as its JSON export has it: id, prompt, settings, environment, results
        """
        try:
            chosen = Settings.from_json({**(settings or {}), "decoders": decoders})
            # An answer in between lets a client that has gone be noticed; the last one counts.
            with closing(host.decode(prompt, chosen, PairChoice())) as events:
                for event in events:
                    yield event.run.to_json() if isinstance(event, Ended) else {}
        except InputError as error:
            raise gr.Error(str(error), print_exception=False) from error

    gr.api(compare, api_name="compare", concurrency_id="device", concurrency_limit=1)
