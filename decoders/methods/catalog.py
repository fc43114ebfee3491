"""Every decoder by name: `catalog["mtad"](beams=8)` makes one with these settings.

Decoders of other packages join the catalog through the entry points `decoders.methods`, in their
pyproject.toml:

    [project.entry-points."decoders.methods"]
    mine = "my_package.my_module:Mine"
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any

from decoders.errors import InputError, first_line, quoted, refuse
from decoders.methods import baselines, dsbd, mtad, named
from decoders.settings import Law, Method, nearest

GROUP = "decoders.methods"
CLAIMS = ("name", "law", "paper", "section", "summary")


class Catalog(Mapping[str, type[Method]]):
    """The decoders, in the order in which they are shown.

    Args:
        methods: our own decoders

    Raises:
        InputError: when an unknown name is looked up; the message suggests the nearest name
    """

    def __init__(self, *methods: type[Method]):
        self._own = {method.name: method for method in methods}

    @cached_property
    def _methods(self) -> dict[str, type[Method]]:
        """Our own decoders, then those of other packages.

        The latter are imported when the catalog is first read, because they import this package.
        """
        methods = dict(self._own)
        for entry in entry_points(group=GROUP):
            try:
                method = joined(entry.load(), methods)
            # A module of another package can fail in any way; the other decoders must still work.
            except (Exception, SystemExit) as error:
                source = entry.dist.name if entry.dist else entry.value
                why = (
                    first_line(error)
                    if isinstance(error, InputError)
                    else f"{type(error).__name__}: {first_line(error)}"
                )
                warnings.warn(
                    f"The decoder {entry.name!r} of {source} is left out: {why}", stacklevel=2
                )
            else:
                methods[method.name] = method
        return methods

    def __getitem__(self, name: str) -> type[Method]:
        if name not in self:
            word = name if isinstance(name, str) else ""
            raise InputError(f"There is no decoder {quoted(name)}: {nearest(word, self._methods)}")
        return self._methods[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._methods

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)

    def __len__(self) -> int:
        return len(self._methods)


def joined(method: Any, others: Mapping[str, type[Method]]) -> type[Method]:
    """Check that a decoder may join the catalog.

    Args:
        method: what an entry point loaded
        others: the decoders that are in the catalog already

    Returns:
        The decoder's class.

    Raises:
        InputError: if it is no decoder, lacks a claim, or has the name of another decoder
    """
    refuse(
        (
            not (isinstance(method, type) and issubclass(method, Method) and is_dataclass(method)),
            f"{quoted(method)} is not a dataclass that inherits from decoders.Method.",
        )
    )
    if missing := [name for name in CLAIMS if not hasattr(method, name)]:
        raise InputError(f"{method.__name__} does not say its {', '.join(missing)}.")
    plain = [field.name for field in fields(method) if "help" not in field.metadata]
    refuse(
        (
            not (isinstance(method.name, str) and method.name.isidentifier()),
            f"{quoted(method.name)} is not a name of letters, digits and underscores.",
        ),
        (
            method.name in list(others),
            f"there is a decoder {quoted(method.name)} already.",
        ),
        (
            plain,
            f"its {', '.join(plain)} is not made with decoders.settings.setting, as every setting "
            "must be.",
        ),
    )
    # The default settings must be allowed.
    method()
    if method.law is not None and method.law not in list(Law):
        raise InputError(
            f"its law is {quoted(method.law)}, and a law is one of "
            f"{', '.join(repr(law.value) for law in Law)} or None."
        )
    return method


catalog = Catalog(
    baselines.Greedy, baselines.Multinomial, baselines.BeamSearch, baselines.BeamSampling,
    named.Speculative, mtad.MTAD, dsbd.DSBD, mtad.MTJD, named.BiLD, named.SpecTr, named.SpecInfer,
    named.MCSS, named.Typical, named.PromptLookup, named.NGramDrafts, named.BlockVerification,
    named.Match, named.TraversalVerification, named.MultiPathBlock, named.SpeculativeCascade,
    named.SpeculativeEnsemble, named.FLy, named.BestFirstTrees, named.SuffixDecoding,
    named.TokenRecycling, baselines.SpeculativeBeamSearch,
)  # fmt: skip


def as_method(method: Method | str, **settings: Any) -> Method:
    """A decoder, from a decoder or from a name of the catalog with settings.

    Args:
        method: a decoder, or a name of the catalog
        settings: the settings of the named decoder

    Raises:
        InputError: for anything else, for unknown settings, and for settings beside a decoder
    """
    if isinstance(method, str):
        return catalog[method](**settings)
    refuse(
        (
            not isinstance(method, Method),
            'A decoder is one of the catalog with its settings, as catalog["greedy"](), not '
            f"{quoted(method)}.",
        )
    )
    refuse(
        (
            settings,
            f"{method.name} has its settings already; give {', '.join(settings)} where it is made.",
        )
    )
    return method
