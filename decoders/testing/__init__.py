"""The tools that prove our decoders, for any decoder.

They are toy models, a random source that takes every way in turn, and the laws that decoders claim.

Example:
    ```python
    from decoders.testing import assert_law

    assert_law(MyDecoder(draft_length=2))
    ```
"""

import inspect
import sys
import types
from collections.abc import Iterable
from typing import Any

from decoders.distribution import Warping
from decoders.errors import InputError, allowed
from decoders.methods.catalog import as_method
from decoders.settings import Law, Method
from decoders.testing.oracle import TooManyWays, assert_exact, decode, distance, output_law, ways
from decoders.testing.proof import CHILDREN, Counterexample, Proof, prove
from decoders.testing.situations import Drawn, Rows, Situation, drawn, variation

__all__ = [
    "CHILDREN", "SITUATIONS", "Counterexample", "Drawn", "Proof", "Rows", "Situation",
    "TooManyWays",
    "assert_law", "decode", "distance", "drawn", "mutant", "output_law", "prove", "variation",
    "ways",
]  # fmt: skip

SITUATIONS = tuple(
    drawn(3, seed, warping=warping, end=end)
    for seed, warping, end in (
        (0, Warping(), frozenset()),
        (1, Warping(), frozenset({2})),
        (2, Warping(0.7, 2, 0.9), frozenset()),
        (3, Warping(1.3, 0, 0.8), frozenset({0})),
        (4, Warping(0), frozenset()),
        (5, Warping(0.7, min_p=0.3), frozenset({1})),
        (6, Warping(1.5, 0, 0.9, 0.2, 2.0, temperature_last=True), frozenset()),
    )
)


def assert_law(
    method: Method,
    law: str | None = None,
    situations: Iterable[Situation] = SITUATIONS,
    *,
    limit: int = 20_000,
) -> None:
    """Assert that a decoder has a law, by enumerating every way it can go.

    The laws must agree to 1e-9 in total variation.

    Args:
        law: "target", "beam sampling", "beam sampling per layer" or "beam search"; "cascade" or
            "ensemble" of decoders with these rules; by default the law that it claims
        situations: the toy models, prompts, warpings and ends to try; by default three tokens,
            whole and warped, with and without an end
        limit: most ways of a situation, so take small settings

    Raises:
        AssertionError: if the laws differ, with a call that shows the difference again
        TooManyWays: if a situation has more ways than `limit`
        InputError: for what is no decoder, for an unknown law, and for a decoder that claims none
    """
    method = as_method(method)
    claimed = law or method.law
    if claimed is None:
        raise InputError(
            f"{method.name} claims no law with these settings; say which one it should have."
        )
    name = allowed("law", str(claimed), choices=[each.value for each in Law])
    for situation in situations:
        assert_exact(method, situation, law=name, limit=limit)


def mutant(thing: Any, *edits: tuple[str, str], **names: Any) -> Any:
    """A class or function with a mistake in it, from an edited copy of its module.

    A check that finds no mistake proves nothing.

    Args:
        thing: the class or function
        edits: pairs (old, new); each old text occurs once in the module's source and is replaced
        names: values that the new source may use
    """
    module = sys.modules[thing.__module__]
    source = inspect.getsource(module)
    for old, new in edits:
        assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module}"
        source = source.replace(old, new)
    wrong = types.ModuleType(module.__name__)
    wrong.__dict__.update(names)
    exec(compile(source, f"{module.__file__} (mutant)", "exec"), wrong.__dict__)
    return getattr(wrong, thing.__name__)
