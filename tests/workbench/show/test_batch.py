"""The figures of a batch run agree with its results."""

from dataclasses import replace

import pytest

from tests.workbench.made import made_batch
from workbench.kinds.batch import paper_table
from workbench.runs.figures import BatchFigures
from workbench.runs.record import Load, Run
from workbench.show import batch, tables


@pytest.fixture
def figures() -> BatchFigures:
    return BatchFigures(made_batch())


def lines(figure) -> dict[str, dict]:
    return {t.name: dict(zip(t.x, t.y, strict=True)) for t in figure.data}


def test_speed_up_is_over_greedy_of_the_same_size_and_scheduling(figures):
    found = lines(batch.speed_up(figures, "lookup"))
    assert found["padded (usual)"] == {1: 1.8, 4: 1.25}
    assert found["no padding"] == {1: 1.8, 4: 2.5}
    assert found["dynamic batch"] == {1: 1.8, 4: 2.0}


def disturbed(decoder: str, scheme: str | None = None) -> Run:
    """A batch whose machine was busy while this decoder was timed."""
    run = made_batch()
    busy = [
        replace(r, laps=[replace(lap, load=Load(pressure=0.9)) for lap in r.laps])
        if r.decoder == decoder and scheme in (None, r.scheme) else r
        for r in run.results
    ]  # fmt: skip
    return replace(run, results=busy)


def test_doubts_stand_at_the_points_and_in_the_papers_table():
    """A batch on a busy machine had ≈ only in its table of figures. Charts and the paper's table
    showed plain numbers."""
    run = disturbed("lookup", "vanilla")
    figures = BatchFigures(run)
    for trace in batch.speed_up(figures, "lookup", True).data:
        assert "%{text}%{y" in trace.hovertemplate
        assert list(trace.text) == ["", "≈" if trace.name == "padded (usual)" else ""]
    for decoding, cell in ((False, "≈100 (≈1.25×)"), (True, "≈160 (≈1.25×)")):
        table = paper_table(figures, "lookup", decoding)
        assert [text for row in table.rows for text in row if "≈" in text] == [cell]
    marks = [cell for row in tables.figures(run).rows for cell in row if "≈" in cell]
    assert len(marks) == 4  # tokens/s and times greedy, with prompts and without
    # a ratio to what cannot be trusted cannot be trusted either
    over = BatchFigures(disturbed("greedy"))
    assert {text for trace in batch.speed_up(over, "lookup").data for text in trace.text} == {"≈"}
    first = paper_table(over, "lookup", decoding=False).rows[0]
    assert first[:4] == ["1", "≈50", "≈50", "90 (≈1.80×)"]


def test_the_padding_of_each_batch_size(figures):
    assert lines(batch.padding(figures)) == {"Prompt lookup": {1: None, 4: 0.25}}


@pytest.mark.parametrize("card", batch.CARDS, ids=lambda card: card.title)
def test_every_card_survives_a_run_that_has_only_begun(card):
    """A run is drawn while it grows; its first result is greedy's."""
    run = made_batch()
    begun = BatchFigures(replace(run, results=run.results[:1]))
    assert card.draw(begun, "lookup", False).layout.annotations
