"""What a file about an engine says (Dialect), and any other server with OpenAI's completions API.

Source:
    OpenAI, API reference, "Create completion (legacy)".
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from workbench.engines.record import Chunk, Event, Query, completions

Reader = Callable[[Iterable[Event]], Iterator[Chunk]]


@dataclass(frozen=True)
class Dialect:
    """How an engine is asked and read.

    Attributes:
        kind: its name
        body: the body of a request, given what is asked and the model's name in the server's words
        chunks: reads an answer, from its pieces or as a whole
        path: where it is posted
        takes_ids: whether a prompt may be token ids
        owner: `owned_by` in its list of models; "" if that tells nothing
        sign: a path that only this engine answers, for those whose `owner` tells nothing
        version: where the version is, and the field that holds it; None if it is not told
        cuts: the cut-offs of `Query` that it can be asked for
        apart: pairs of them that it applies in another order than `decoders.Warping`, so that both
            together are another distribution
    """

    kind: str
    body: Callable[[Query, str | None], dict[str, Any]]
    chunks: Reader = completions
    path: str = "/v1/completions"
    takes_ids: bool = False
    owner: str = ""
    sign: str = ""
    version: tuple[str, str] | None = None
    cuts: frozenset[str] = frozenset({"top_p"})
    apart: tuple[tuple[str, str], ...] = ()

    def unsaid(self, query: Query) -> str | None:
        """Why the engine cannot be asked for this sampling, in words; None if it can."""
        if missing := sorted(query.cuts - self.cuts):
            return f"cannot be asked for `{missing[0]}`; set it to its default"
        for first, second in self.apart:
            if {first, second} <= query.cuts:
                return (
                    f"applies `{first}` and `{second}` in another order than here, which is "
                    "another distribution; set one of them to its default"
                )
        return None


def neutral(query: Query, model: str | None) -> dict[str, Any]:
    """The fields that OpenAI's API describes; nothing is penalised."""
    return {
        **({"model": model} if model is not None else {}),
        "prompt": list(query.prompt) if isinstance(query.prompt, tuple) else query.prompt,
        "max_tokens": query.max_tokens,
        "temperature": query.temperature,
        "top_p": query.top_p,
        "seed": query.seed,
        "stream": query.stream,
    }


OTHER = Dialect("other", neutral)
