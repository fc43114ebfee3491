"""Servers that are started for a measurement (Starter), as the file of engines describes them."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from decoders.errors import InputError, refuse

FIELDS = ("start", "draft", "model", "kind", "gpus")
MOST_GPUS = 1024
PORT, LENGTH = "{port}", "{length}"


@dataclass(frozen=True)
class Starter:
    """How a server is started.

    Attributes:
        name: what plans call it
        start: the words of the command, with PORT in one of them; no shell reads them
        draft: the words that make it draft, with LENGTH for the number of draft tokens; they follow
            the command unless nothing is drafted
        model: the model that it should serve; None takes the one that it serves
        kind: its dialect; None finds out
        gpus: GPUs that it uses, and a cluster must give it; 0 if it runs on CPUs, None if the file
            does not say
    """

    name: str
    start: tuple[str, ...]
    draft: tuple[str, ...] = ()
    model: str | None = None
    kind: str | None = None
    gpus: int | None = None

    def drafting(self, length: int) -> tuple[str, ...]:
        """The words that let it draft this many tokens; none for 0."""
        return tuple(word.replace(LENGTH, str(length)) for word in self.draft) if length else ()

    def command(self, length: int, flags: Iterable[str], port: int) -> tuple[str, ...]:
        """The whole command."""
        begins = (word.replace(PORT, str(port)) for word in self.start)
        return (*begins, *self.drafting(length), *flags)


def starter(where: str, name: str, fields: Mapping[str, str]) -> Starter:
    """The starter in an entry of the file.

    Args:
        where: the file, for messages
        name: the engine's name
        fields: the entry

    Raises:
        InputError: for words that are no command
    """
    start, draft = (
        _words(f"{where}: `{field}` of the engine {name}", fields.get(field, ""), within)
        for field, within in (("start", PORT), ("draft", LENGTH))
    )
    gpus = fields.get("gpus")
    refuse(
        (
            gpus is not None and not (gpus.isdecimal() and int(gpus) <= MOST_GPUS),
            f"{where}: `gpus` of the engine {name} must be text, a number from 0 to {MOST_GPUS}.",
        )
    )
    count = None if gpus is None else int(gpus)
    return Starter(name, start, draft, fields.get("model"), fields.get("kind"), count)


def _words(what: str, text: str, within: str) -> tuple[str, ...]:
    """The words of a command as a shell would divide them; one of them must hold a place."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"{what} is no command: {str(error).lower()}.") from None
    refuse((text and within not in text, f"{what} must say where {within} stands."))
    return words
