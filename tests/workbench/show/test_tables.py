"""Tables and sentences agree with the results, for every kind of run."""

from dataclasses import replace

import pytest

from tests.workbench.made import made_batch, made_result, with_results
from workbench.kinds import batch
from workbench.runs.figures import BatchFigures
from workbench.runs.record import Load, Run
from workbench.runs.timing import BUSY
from workbench.show import tables
from workbench.show.tables import Table


@pytest.fixture
def made():
    return made_batch()


def row_of(table: Table, scheme: str) -> dict[str, str]:
    return dict(zip(table.heads, next(r for r in table.rows if r[2] == scheme), strict=True))


def test_a_batch_has_a_row_for_each_measurement_and_repeats_as_a_spread(made):
    again = made_result("lookup", 4, "vanilla", 140.0, repeat=1)
    table = tables.figures(with_results(made, [*made.results, again]))
    vanilla = row_of(table, "padded (usual)")
    assert len(table.rows) == 9
    assert vanilla["tokens/s"] == "120 ± 28.3"
    assert (vanilla["× greedy"], vanilla["padding"], vanilla["same"]) == ("1.50×", "25%", "yes")
    assert (vanilla["at once"], vanilla["cache"], vanilla["pad tokens"]) == ("4", "3 MB", "20")
    assert [row[2] for row in table.rows[:4]] == ["alone", "alone", "static", "dynamic"]


def test_the_papers_table(made):
    """Speed-ups of dynamic batches did not follow from the only speed of greedy beside them. Four
    cells of a batch of one were empty."""
    figures = BatchFigures(made)
    table = batch.paper_table(figures, "lookup", decoding=False)
    assert table.heads == [
        "batch", "greedy", "greedy, dynamic", "padded (usual)", "unpadded cache", "unpadded inputs",
        "no padding", "dynamic batch", "padding ratio", "slowest prompt",
    ]  # fmt: skip
    alone, four = table.rows
    assert alone == ["1", "50", "50", *["90 (1.80×)"] * 5, "–", "2.50"]
    assert four[:5] == ["4", "80", "120", "100 (1.25×)", "120 (1.50×)"]
    assert four[5:] == ["150 (1.88×)", "200 (2.50×)", "240 (2.00×)", "25%", "1.00"]
    assert "dynamic batch" not in batch.paper_table(figures, "lookup", decoding=True).heads


def test_outputs_that_differ_and_requests_that_fail_are_in_the_verdict(made):
    assert batch.findings(made)[0] == "Identical tokens in every scheme and at every batch size."
    *rest, last = made.results
    failed = replace(last.samples[0], error="The model gave NaN.")
    samples = [failed, *last.samples[1:]]
    bad = made_result("lookup", 4, "dynamic", 240.0, differing=2, samples=samples)
    words = batch.findings(with_results(made, [bad, *rest]))[0]
    assert words.startswith("2 outputs differ from the decoder's first")
    assert words.endswith("1 request failed: The model gave NaN.")


def test_a_measurement_that_broke_down_is_in_the_verdict(made):
    """A batch that ran out of memory once ended the whole experiment."""
    *rest, last = made.results
    none = dict.fromkeys(last.metrics)
    broken = replace(last, error="The device ran out of memory.", agreement=None, metrics=none)
    run = with_results(made, [*rest, broken])
    assert batch.findings(run)[0].endswith("1 measurement failed: The device ran out of memory.")
    cells = row_of(tables.figures(run), "dynamic batch")
    assert {cells[name] for name in ("tokens/s", "× greedy", "decoding", "same")} == {"–"}


def test_findings_say_how_much_samples_differ(made):
    _, words = batch.findings(made)
    assert words == (
        "Prompt lookup: 2.50 tokens per round, mean of 4 samples that range from 1.00 to 4.00, "
        "deviation 1.29."
    )
    assert len(batch.findings(with_results(made, made.results[2:]))) == 1


def test_a_table_as_markdown_and_as_html():
    table = Table(["a", "b|c"], [["<b>", "2"]])
    lines = tables.markdown(table).splitlines()
    assert lines == ["| a | b\\|c |", "| :--- | ---: |", "| <b> | 2 |"]
    assert "<td>&lt;b&gt;</td><td>2</td>" in tables.markup(table)
    assert "<th>b|c</th>" in tables.markup(table)


def disturbed(run: Run, decoders: set[str]) -> Run:
    """The run, with a machine that was busy while these decoders were timed, and only then."""
    results = []
    for result in run.results:
        load = Load(pressure=0.9) if result.decoder in decoders else Load()
        results.append(replace(result, laps=[replace(result.laps[0], load=load)]))
    return with_results(run, results)


def test_decoders_with_the_same_doubt_share_a_sentence(run):
    """A long sentence stood under the table once for each decoder."""
    first, second = tables.notes(disturbed(run, {"mtad", "beam_search"}))
    assert first.startswith("≈ marks speeds that cannot be trusted.")
    assert second == f"Beam search, MTAD: Unsteady: {BUSY}."


def test_a_remark_keeps_its_letters(run):
    """ "RuntimeError" became "runtimeerror"."""
    remark = "Timing 2 failed (RuntimeError: broken); the 1 before it counts."
    results = [replace(r, remarks=[remark]) if r.decoder == "mtad" else r for r in run.results]
    assert tables.notes(with_results(run, results))[-1] == f"MTAD: {remark}"


def test_repeats_show_the_most_at_once_and_all_that_differ(made):
    more = {"at_once": 9, "peak_cache_bytes": 5_000_000, "differing": 2}
    again = made_result("lookup", 4, "vanilla", 140.0, repeat=1, **more)
    vanilla = row_of(tables.figures(with_results(made, [*made.results, again])), "padded (usual)")
    assert (vanilla["at once"], vanilla["cache"], vanilla["same"]) == ("9", "5 MB", "2 differ")


def test_nothing_compared_is_not_called_identical(made):
    alone = with_results(made, [replace(made.results[0], agreement=None)])
    assert batch.findings(alone)[0] == "Too little to compare."
