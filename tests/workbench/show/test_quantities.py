"""The figures on screen are those of the run's JSON, with the counts they were made of."""

import dataclasses
import math

from workbench.runs.store import Run
from workbench.show.quantities import NUMBERS, by_decoder, shown, spread, table

BY_NAME = {n.name: n for n in NUMBERS}


def test_figures_equal_those_recomputed_from_the_json(run):
    data = run.to_json()
    for result, kept in zip(run.results, data["results"], strict=True):
        tokens, rounds = kept["tokens"], kept["rounds"]
        drafted = [t for r in rounds for t in r["trials"] if t["fate"] in ("accepted", "rejected", "discarded")]
        accepted = [t for t in drafted if t["fate"] == "accepted"]
        assert BY_NAME["perplexity"].value(result) == math.exp(-sum(t["log_p"] for t in tokens) / len(tokens))
        assert BY_NAME["block_efficiency"].value(result) == len(tokens) / sum(r["target_calls"] for r in rounds)
        assert BY_NAME["acceptance"].value(result) == (len(accepted) / len(drafted) if drafted else None)
        assert BY_NAME["acceptance"].counts(result) == f"{len(accepted)} of {len(drafted)} drafted"


def test_mean_and_deviation_over_repeats(run):
    group = by_decoder(run.results)["mtad"]
    found = spread(BY_NAME["perplexity"], group)
    a, b = (r.metrics["perplexity"] for r in group)
    assert math.isclose(found.mean, (a + b) / 2)
    assert math.isclose(found.deviation, abs(a - b) / math.sqrt(2))
    assert " ± " in shown(BY_NAME["perplexity"], group)
    assert spread(BY_NAME["perplexity"], group[:1]).deviation is None


def test_what_is_not_measured_is_no_zero(run):
    group = by_decoder(run.results)["mtad"]
    assert shown(BY_NAME["joules_per_token"], group) == "–"
    assert BY_NAME["joules_per_token"].counts(group[0]).startswith("not measured: ")


def test_a_failed_repeat_does_not_spoil_the_others(run):
    first, second = by_decoder(run.results)["greedy"]
    broken = dataclasses.replace(second, error="it broke", metrics=dict.fromkeys(second.metrics))
    assert shown(BY_NAME["speed"], [first, broken]) == shown(BY_NAME["speed"], [first])


def test_the_table_has_a_row_for_each_decoder(run: Run):
    heads, rows = table(run.results)
    assert [row[0] for row in rows] == list(by_decoder(run.results))
    assert all(len(row) == len(heads) for row in rows)
