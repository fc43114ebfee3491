"""The figures on screen are those of the run's JSON, with the counts they were made of."""

import math
import re
from dataclasses import replace

import pytest

from workbench.runs.figures import Row, rows
from workbench.runs.record import Run
from workbench.show.quantities import (
    BATCH_QUANTITIES,
    BY_NAME,
    QUANTITIES,
    megabytes,
    shown,
    significant,
    spread,
)


def of(run: Run, decoder: str) -> Row:
    return next(row for row in rows(run.results) if row.decoder == decoder)


def test_figures_equal_those_recomputed_from_the_json(run):
    data = run.to_json()
    for result, kept in zip(run.results, data["results"], strict=True):
        (sample,) = kept["samples"]
        tokens, rounds = sample["tokens"], sample["rounds"]
        fates = ("accepted", "rejected", "discarded")
        drafted = [t for r in rounds for t in r["trials"] if t["fate"] in fates]
        accepted = [t for t in drafted if t["fate"] == "accepted"]

        def value(name, result=result):
            return BY_NAME[name].value(result, None)

        assert value("perplexity") == math.exp(-sum(t["log_p"] for t in tokens) / len(tokens))
        assert value("block_efficiency") == len(tokens) / sum(r["target_calls"] for r in rounds)
        assert value("acceptance") == (len(accepted) / len(drafted) if drafted else None)
        assert BY_NAME["acceptance"].counts(result) == f"{len(accepted)} of {len(drafted)} drafted"


def test_mean_and_deviation_over_repeats(run):
    row = of(run, "mtad")
    found = spread(BY_NAME["perplexity"], row)
    a, b = (r.metrics["perplexity"] for r in row.results)
    assert math.isclose(found.mean, (a + b) / 2)
    assert math.isclose(found.deviation, abs(a - b) / math.sqrt(2))
    assert " ± " in shown(BY_NAME["perplexity"], row)
    alone = replace(row, results=row.results[:1], greedy=row.greedy[:1])
    assert spread(BY_NAME["perplexity"], alone).deviation is None


def test_a_deviation_that_shows_as_nothing_is_not_shown(run):
    """Greedy's ratio to itself was "1.00x +- 0.00x"."""
    row = of(run, "mtad")
    each = zip(row.results, (2.03, 2.0301), strict=True)
    both = [replace(r, metrics={**r.metrics, "perplexity": value}) for r, value in each]
    assert shown(BY_NAME["perplexity"], replace(row, results=both)) == "2.03"
    assert "±" not in shown(BY_NAME["x_greedy"], of(run, "greedy"))


def test_a_failed_repeat_does_not_spoil_the_others(run):
    row = of(run, "greedy")
    first, second = row.results
    broken = replace(second, error="it broke", metrics=dict.fromkeys(second.metrics))
    alone = replace(row, results=[first], greedy=row.greedy[:1])
    found = spread(BY_NAME["speed"], replace(row, results=[first, broken]))
    assert found.mean == spread(BY_NAME["speed"], alone).mean
    assert found.deviation is None


@pytest.mark.parametrize("seconds", [0.1187, 0.0049, 3.14159, 98.765])
def test_a_figure_follows_from_the_counts_beside_it(run, seconds):
    """ "539 tokens/s, 64 tokens in 0.12 s": that would be 533."""
    result = of(run, "mtad").first
    metrics = {"new_tokens": 64, "seconds": seconds, "tokens_per_second": 64 / seconds}
    metrics = {**result.metrics, **metrics, "bytes_read": 1_145_678_901}
    result = replace(result, metrics=metrics)
    said = BY_NAME["speed"].counts(result)
    tokens, shown_seconds = re.fullmatch(r"(\d+) tokens in ([\d.]+) s", said).groups()
    assert significant(64 / seconds) == significant(int(tokens) / float(shown_seconds))
    read = re.fullmatch(r"([\d,.]+) MB read", BY_NAME["memory_per_token"].counts(result))[1]
    assert megabytes(1_145_678_901 / 64) == f"{significant(float(read.replace(',', '')) / 64)} MB"


def test_what_is_not_measured_is_no_zero(run):
    row = of(run, "mtad")
    assert shown(BY_NAME["joules_per_token"], row) == "–"
    assert BY_NAME["joules_per_token"].counts(row.first).startswith("not measured: ")


def test_metrics_that_are_missing_or_no_numbers_are_no_figures(run):
    """An imported file with `metrics: {}`, or with texts in it, once gave an error 500."""
    row = of(run, "mtad")
    for metrics in ({}, dict.fromkeys(row.first.metrics, "many")):
        bare = replace(row, results=[replace(r, metrics=metrics, laps=[]) for r in row.results])
        for quantity in (*QUANTITIES, *BATCH_QUANTITIES):
            assert shown(quantity, bare) == ("yes" if quantity.name == "same" else "–")
            assert isinstance(quantity.counts(bare.first), str)
