"""vLLM's synthetic acceptance: the `--speculative-config` that accepts as often as a method does.

`synthetic_acceptance_rates` has for each place of the draft the share of rounds that accept all
tokens up to it. `synthetic_acceptance_length` is a mean acceptance length, the target's token
counted; vLLM turns it into the rates with the least variance.

Source:
    vLLM 0.32.0: `rejection_sample_method`, `synthetic_acceptance_rates`,
    `synthetic_acceptance_length` and `_acceptance_length_to_rates` in `vllm/config/speculative.py`.
"""

import json
from collections.abc import Mapping
from typing import Any

from decoders.errors import InputError, allowed, quoted, refuse, whole
from workbench.profiles.profile import LONGEST, Curve, Point, Profile

SYNTHETIC, TOKENS = "synthetic", "num_speculative_tokens"
RATES, LENGTH = "synthetic_acceptance_rates", "synthetic_acceptance_length"


def is_config(data: Any) -> bool:
    """Whether this JSON is such a config."""
    return isinstance(data, Mapping) and TOKENS in data


def read(data: Mapping[str, Any], name: str) -> Profile:
    """The profile, of one point, in a config.

    Args:
        data: the config
        name: the file's name without the ending

    Raises:
        InputError: for a config that vLLM would refuse, or without synthetic acceptance
    """
    rates, length, tokens = (data.get(name) for name in (RATES, LENGTH, TOKENS))
    refuse(
        (
            data.get("rejection_sample_method") != SYNTHETIC or (rates is None) == (length is None),
            f"This config of vLLM has no synthetic acceptance: it needs `rejection_sample_method` "
            f"“{SYNTHETIC}” and either `{RATES}` or `{LENGTH}`.",
        )
    )
    tokens = whole(TOKENS, tokens, LONGEST)
    if rates is None:
        given = minimum_variance(allowed(LENGTH, length, 1.0, tokens + 1.0), tokens)
    elif isinstance(rates, list):
        given = tuple(float(allowed(RATES, rate, 0.0, 1.0)) for rate in rates)
    else:
        raise InputError(f"{RATES} must be a list of numbers, not {quoted(rates)}.")
    point = Point(tokens, 1 + sum(given), given)
    draft = data.get("model") if isinstance(data.get("model"), str) else ""
    curve = Curve(str(data.get("method") or name)[:200], "all", (point,))
    return Profile(f"vLLM, {name}"[:200], "", str(draft)[:200], None, (curve,))


def minimum_variance(length: float, tokens: int) -> tuple[float, ...]:
    """The rates that vLLM makes of an acceptance length."""
    accepted = length - 1
    return tuple(min(1.0, max(0.0, accepted - place)) for place in range(tokens))


def write(point: Point) -> str:
    """The value of `--speculative-config`; the server's own method and draft belong beside it.

    Raises:
        InputError: for a point of a method that drafts trees, which has no rate for each draft
            token
    """
    if point.tree or (point.drafted is not None and point.drafted > point.draft_length):
        raise InputError(
            "vLLM accepts chains, and this method drafts trees; export a method that drafts chains."
        )
    accepted: dict[str, Any] = {LENGTH: round(point.length, 4)}
    if point.rates:
        accepted = {RATES: [round(rate, 4) for rate in point.rates]}
    config = {TOKENS: point.draft_length, "rejection_sample_method": SYNTHETIC, **accepted}
    return json.dumps(config)
