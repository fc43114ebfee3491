"""Every decoder by name: `catalog["mtad"](beams=8)` makes one with these settings.

Decoders of other packages join it through the entry points `decoders.methods`: in their pyproject.toml,

    [project.entry-points."decoders.methods"]
    mine = "my_package.my_module:Mine"
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any

from decoders.errors import InputError, first_line
from decoders.methods.autoregressive import Greedy, Multinomial
from decoders.methods.beam import BeamSampling, BeamSearch
from decoders.methods.bild import BiLD
from decoders.methods.block import BlockVerification
from decoders.methods.dsbd import DSBD
from decoders.methods.lookup import PromptLookup
from decoders.methods.mcss import MCSS
from decoders.methods.mtad import MTAD
from decoders.methods.mtjd import MTJD
from decoders.methods.ngram import NGramDrafts
from decoders.methods.specinfer import SpecInfer
from decoders.methods.spectr import SpecTr
from decoders.methods.speculative import Speculative
from decoders.methods.typical import Typical
from decoders.settings import LAWS, Method, nearest

GROUP = "decoders.methods"
CLAIMS = ("name", "law", "paper", "section", "summary")


class Catalog(Mapping[str, type[Method]]):
    """The decoders in the order they are shown. An unknown name raises InputError, which suggests the nearest one."""

    def __init__(self, *methods: type[Method]):
        self._own = {method.name: method for method in methods}

    @cached_property
    def _methods(self) -> dict[str, type[Method]]:
        """Our own and, after them, those of other packages. These are imported when the catalog is first read: they import us."""
        methods = dict(self._own)
        for entry in entry_points(group=GROUP):
            try:
                method = joined(entry.load(), methods)
            # A stranger's module can fail in any way, and the others must work.
            except (Exception, SystemExit) as error:
                source = entry.dist.name if entry.dist else entry.value
                why = (
                    first_line(error)
                    if isinstance(error, InputError)
                    else f"{type(error).__name__}: {first_line(error)}"
                )
                warnings.warn(f"The decoder {entry.name!r} of {source} is left out: {why}", stacklevel=2)
            else:
                methods[method.name] = method
        return methods

    def __getitem__(self, name: str) -> type[Method]:
        if name not in self._methods:
            raise InputError(f"There is no decoder {name!r}: {nearest(str(name), self._methods)}")
        return self._methods[name]

    def __contains__(self, name: object) -> bool:
        return name in self._methods

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)

    def __len__(self) -> int:
        return len(self._methods)


def joined(method: Any, others: Mapping[str, type[Method]]) -> type[Method]:
    """A decoder that may join these. Raises InputError if it is none, claims too little, or has the name of another."""
    if not (isinstance(method, type) and issubclass(method, Method) and is_dataclass(method)):
        raise InputError(f"{method!r} is not a dataclass that inherits from decoders.Method.")
    if missing := [name for name in CLAIMS if not hasattr(method, name)]:
        raise InputError(f"{method.__name__} does not say its {', '.join(missing)}.")
    if not (isinstance(method.name, str) and method.name.isidentifier()):
        raise InputError(f"{method.name!r} is not a name of letters, digits and underscores.")
    if method.name in others:
        raise InputError(f"there is a decoder {method.name!r} already.")
    if plain := [field.name for field in fields(method) if "help" not in field.metadata]:
        raise InputError(
            f"its {', '.join(plain)} is not made with decoders.settings.setting, as every setting must be."
        )
    method()  # its default settings must be allowed
    if method.law is not None and method.law not in LAWS:
        raise InputError(f"its law is {method.law!r}, and a law is one of {', '.join(map(repr, LAWS))} or None.")
    return method


catalog = Catalog(
    Greedy, Multinomial, BeamSearch, BeamSampling, Speculative, MTAD, DSBD,
    MTJD, BiLD, SpecTr, SpecInfer, MCSS, Typical, PromptLookup, NGramDrafts, BlockVerification,
)  # fmt: skip
