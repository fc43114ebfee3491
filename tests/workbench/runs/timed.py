"""Made-up laps and results of them."""

from workbench.runs.record import Energy, Lap, Result, Sample

NONE = Energy(None, "not measured: a test")


def lap(*rounds: float, seconds: float | None = None, joules: float | None = None, **more) -> Lap:
    """A lap of these rounds, or, with `seconds` alone, of a batch."""
    energy = Energy(joules, "CPU package (RAPL)") if joules is not None else NONE
    whole = sum(rounds) if seconds is None else seconds
    return Lap(whole, list(rounds), energy, after_first=sum(rounds[1:]) if rounds else None, **more)


def result(*each: Lap, decoder: str = "mtad", **more) -> Result:
    return Result(decoder, 0, 0, {}, NONE, [Sample(0, 1)], list(each), **more)
