"""An engine of a plan: a server, what it is asked, and how many requests at once ([[engine]]).

A plan names engines, as whoever runs the workbench has named them. It never carries an address.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from decoders import InputError
from decoders.errors import quoted, refuse
from workbench.experiments.plan import USUAL_TIMINGS, Costs, PlanEngine
from workbench.experiments.plan_part import Keys
from workbench.studies.methods import Served
from workbench.studies.schemes import LARGEST_BATCH

# A URL, host:port, [IPv6]:port, or IPv4.
ADDRESS = re.compile(r"://|[\w.-]:\d{2,5}(?!\d)|\]:\d|\d+\.\d+\.\d+\.\d+")
PROSE = ("about", "part")
LISTENING = re.compile(r"--?(host|port|h|p)\b")
LONGEST_DRAFT = 64


def engine(keys: Keys) -> PlanEngine:
    """Read an engine.

    Args:
        keys: its table

    Raises:
        InputError: if a key or a value is wrong, or any of them is an address
    """
    _no_address(keys)
    own = {f.name for f in dataclasses.fields(PlanEngine)} - {"starts"}
    keys.refuse_others(*own, "start")
    if ("name" in keys.data) == ("start" in keys.data):
        raise InputError(
            f"{keys.place}: give either `name`, of an engine that runs, or `start`, of one to be "
            "started."
        )
    starts = "start" in keys.data
    try:
        name = Served(keys.text("start" if starts else "name")).engine
    except InputError as error:
        raise InputError(f"{keys.place}: {error}") from None
    keys = Keys(f"{keys.place} ({name})", keys.data)
    for key in ("draft_lengths", "flags"):
        if key in keys.data and not starts:
            raise InputError(
                f"{keys.place}: `{key}` needs `start`: an engine that runs already keeps its own."
            )
    flags = keys.texts("flags")
    if listening := next(filter(LISTENING.match, flags), None):
        raise InputError(
            f"{keys.place}: the flag {quoted(listening)} says where the server listens, which only "
            "the file of engines may say; leave it out."
        )
    found = PlanEngine(
        name,
        starts,
        keys.text("part", name),
        keys.texts("prompts", ["stories"]),
        _whole(keys, "concurrency", [1], 1, LARGEST_BATCH),
        _whole(keys, "draft_lengths", [0], 0, LONGEST_DRAFT) if starts else (),
        flags,
        keys.text("about", ""),
        keys.whole("limit", None),
        keys.whole("max_new_tokens", 64, high=100_000),
        _number(keys, "temperature", 1.0, 100.0),
        keys.whole("seed", 0, low=0),
        keys.whole("timings", USUAL_TIMINGS, high=100),
        _costs(keys),
    )
    refuse((not found.prompts, f"{keys.place}: `prompts` needs at least one name."))
    return found


def _no_address(keys: Keys) -> None:
    told = {key: value for key, value in keys.data.items() if key not in PROSE}
    if any(ADDRESS.search(text) for text in _texts(told)):
        # It is not repeated, for it may hold a password.
        raise InputError(
            f"{keys.place}: a plan carries no address; name the engine in WORKBENCH_ENGINES or its "
            "file, and give its name here."
        )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield key
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _whole(keys: Keys, key: str, default: list[int], low: int, high: int) -> tuple[int, ...]:
    found = keys.numbers(key, default, whole=True)
    if not all(low <= number <= high for number in found):
        raise keys.fault(key, f"from {low} to {high}")
    return found


def _number(keys: Keys, key: str, default: float, high: float) -> float:
    def fits(value: Any) -> bool:
        return type(value) in (int, float) and 0 <= value <= high

    return float(keys.read(key, default, fits, f"a number from 0 to {high:g}"))


def _costs(keys: Keys) -> Costs | None:
    if "costs" not in keys.data:
        return None
    data, names = keys.data["costs"], [f.name for f in dataclasses.fields(Costs)]
    if not isinstance(data, dict) or set(data) != set(names):
        raise InputError(
            f"{keys.place}: `costs` must be a table with {', '.join(names)}, not {quoted(data)}."
        )
    inside = Keys(f"{keys.place}, costs", data)
    return Costs(*(_number(inside, name, 0.0, 1e6) for name in names))
