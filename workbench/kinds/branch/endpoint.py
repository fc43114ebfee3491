"""The endpoints /alternatives and /branch."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from workbench.kinds.branch.form import alternatives as likely
from workbench.kinds.branch.form import branch as continued
from workbench.kinds.branch.form import place
from workbench.kinds.comparison.endpoint import answer
from workbench.models.presets import PairChoice
from workbench.page.api import answers, offer, told
from workbench.page.host import Host


def register(host: Host) -> None:
    def alternatives(run: str, decoder: str, at: int) -> dict[str, Any]:
        """List the tokens that could stand at a place of a comparison's text.

        They come from one pass of the large model over the tokens before the place. Each has an id,
        a text, its probability under the large model (raw) and its probability under the decoder
        (warped: 0 if the decoder never writes it, null if the decoder does not sample).

        Args:
            run: the id of a kept run
            decoder: the decoder whose text it is
            at: number of tokens of the text before the place

        Returns:
            alternatives: a list of id, text, raw and warped
        """
        with told():
            choices, _ = likely(
                host, run, place({"run": run, "decoder": decoder, "at": at}), PairChoice()
            )
            return {"alternatives": [asdict(each) for each in choices]}

    def branch(
        run: str, decoder: str, at: int, token: int | str, decoders: list[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Continue a comparison's text from a place with another token, as a new run.

        Args:
            run: the id of a kept run
            decoder: the decoder whose text it is
            at: number of tokens of the text to keep
            token: the token after them: its vocabulary id, or the text of a single token
            decoders: the decoders that continue; by default the one whose text it is

        Returns:
            the run as /compare gives it; its `start` names the parent
        """
        where = {"run": run, "decoder": decoder, "at": at, "token": token}
        yield from answers(
            host, lambda: continued(host, run, place(where), PairChoice(), token, decoders), answer
        )

    offer(alternatives)
    offer(branch)
