"""Profiles of runs and experiments: which rounds count, and under which name and draft length."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from decoders import InputError, catalog
from tests.workbench.experiments.made import row, sample
from tests.workbench.profiles.test_profile import in_file
from workbench.experiments.report import Report
from workbench.experiments.rows import Kept
from workbench.kinds.comparison.study import Comparison
from workbench.measuring import session
from workbench.profiles import files, gather, vllm
from workbench.profiles.profile import Curve, Point
from workbench.runs.record import Run, Sample


def rounds(gained, drafted, finished="budget", budget=100, length=3):
    sample = Sample(0, 4, gained=gained, drafted=drafted, finished=finished)
    return list(gather.Rounds("speculative", length, budget, sample).counted())


def test_rounds_count_while_a_whole_draft_fits():
    assert rounds([4, 1, 2], [3, 2, 1], budget=7) == [(4, 3)]
    assert rounds([4, 1, 2], [3, 3, 2], budget=8) == [(4, 3), (1, 3)]


def test_the_round_in_which_a_text_ended_does_not_count():
    assert rounds([4, 2], [3, 3], "end of sequence") == [(4, 3)]
    assert rounds([4, 2], [3, 3], "cancelled") == [(4, 3)]
    assert rounds([4, 2], [3, 3]) == [(4, 3), (2, 3)]


def test_a_point_has_the_rates_of_rounds_that_drafted():
    point = gather._point(3, False, [(4, 3), (1, 3), (2, 3), (1, 0), (4, 3)])
    assert point == Point(3, 1 + 0.75 + 0.5 + 0.5, (0.75, 0.5, 0.5), 3.0, 0.8, 4)
    assert gather._point(3, False, [(1, 0)]) is None


@pytest.fixture(scope="module")
def run(pair) -> Run:
    asked = {"decoders": ["greedy", "speculative", "specinfer", "lookup"], "timings": 1}
    settings = {**asked, "max_new_tokens": 40, "speculative": {"draft_length": 2}}
    study = Comparison.from_json({"prompt": "abc abc", "settings": settings})
    *_, ended = session.run(pair, study)
    return ended.run


def test_a_run_has_a_curve_for_each_decoder_that_drafts(run, tmp_path):
    found = files.read(in_file(tmp_path, run.dumps()))
    curves = {curve.method: curve for curve in found.curves}
    assert "greedy" not in curves
    (point,) = curves["speculative"].points
    sample = next(r for r in run.results if r.decoder == "speculative").alone
    counted = [
        g - 1
        for g, written in zip(
            sample.gained, [sum(sample.gained[:i]) for i in range(len(sample.gained))], strict=True
        )
        if 40 - written > 2
    ]
    assert (point.draft_length, point.rounds) == (2, len(counted))
    assert point.length == pytest.approx(1 + sum(counted) / len(counted))
    (tree,) = curves["specinfer"].points
    assert tree.draft_length == 4  # layers
    assert tree.drafted > tree.draft_length
    with pytest.raises(InputError, match="drafts trees"):
        vllm.write(tree)


def test_an_engine_counts_its_verifications_and_not_its_pass_over_the_prompt(run):
    first = run.results[0]
    told = replace(
        first,
        decoder="engine:fast",
        samples=[replace(first.alone, gained=[1, 3, 1, 4], drafted=[0, 3, 3, 3])],
    )
    (curve,) = gather.of_run(replace(run, results=[told])).curves
    assert curve.method == "engine:fast"
    (point,) = curve.points
    assert (point.rounds, point.rates) == (3, pytest.approx((2 / 3, 2 / 3, 1 / 3)))
    assert point.share == 1


def of_engine(run: Run, settings=None, **fields) -> Run:
    """The run with a sound text of an engine, and before it one with these fields."""
    sound = replace(run.results[0].alone, gained=[1, 3, 1, 4], drafted=[0, 3, 3, 3])
    result = replace(run.results[0], decoder="engine:fast", settings=settings or {})
    return replace(run, results=[replace(result, samples=[replace(sound, **fields), sound])])


@pytest.mark.parametrize(
    "change",
    [
        lambda run: replace(run, environment={**run.environment, "target": "x", "draft": [1]}),
        lambda run: replace(run, environment={**run.environment, "target": {"name": 5}}),
        lambda run: replace(run, environment={**run.environment, "target": {"name": "x" * 251}}),
        lambda run: of_engine(run, gained=[]),
        lambda run: of_engine(run, drafted=[0, 5000, 5000, 5000]),
        lambda run: of_engine(run, category="c" * 300),
        lambda run: of_engine(run, {"draft_length": "x"}),
        lambda run: of_engine(run, {"draft_length": 2.5}),
        lambda run: of_engine(run, {"draft_length": -5}),
        lambda run: of_engine(run, {"draft_length": 5000}),
    ],
)
def test_an_odd_run_from_a_file_becomes_a_profile_that_is_read_again(run, tmp_path, change):
    """It was a traceback, or a profile that was refused when it was read."""
    found = files.read(in_file(tmp_path, change(run).dumps()))
    assert found.curves[0].points[0].draft_length <= 4
    assert files.read(in_file(tmp_path, found.dumps())) == found


def test_a_run_without_drafts_has_no_profile(run):
    greedy = [r for r in run.results if r.decoder == "greedy"]
    with pytest.raises(InputError, match="has no rounds that drafted"):
        gather.of_run(replace(run, results=greedy))


def test_an_experiment_has_a_curve_for_each_category_and_whatever_varies():
    def cell(temperature: float, gained: list[int]) -> Kept:
        asked = {"decoder": "speculative", "settings": {"draft_length": 3}, "pair": "p",
                 "prompts": "s", "temperature": temperature, "max_new_tokens": 50}  # fmt: skip
        rows = {
            i: row("speculative", i, [sample(i, gained=gained, drafted=[3] * 3, category=name)])
            for i, name in enumerate("ab")
        }
        return Kept("part", f"{temperature}", "speculative", "block", 2, asked, rows)

    progress = SimpleNamespace(id="abc")
    found = gather.of_report(
        Report("x", None, progress, {}, [cell(0.0, [4, 2, 1]), cell(1.0, [1, 1, 1])])
    )
    curves = {(c.method, c.category): c.points[0] for c in found.curves}
    assert set(curves) == {
        (f"speculative, temperature={t}", category)
        for t in (0.0, 1.0)
        for category in ("all", *"ab")
    }
    assert curves["speculative, temperature=0.0", "a"].length == 3.0
    assert curves["speculative, temperature=0.0", "all"].rounds == 4
    assert found.temperature is None
    assert found.source == "experiment abc"


def test_an_engine_of_a_plan_has_the_draft_length_it_was_started_with():
    asked = {"decoder": "engine:fast", "settings": {"concurrency": 4, "draft_length": 3},
             "pair": "fast", "temperature": 1.0, "max_new_tokens": 50}  # fmt: skip
    outputs = [sample(0, gained=[1, 3, 1, 3], drafted=[0, 2, 2, 2])]
    cell = Kept("part", "c", "fast", "block", 1, asked, {0: row("c", 0, outputs)})
    found = gather.of_report(Report("x", None, SimpleNamespace(id="abc"), {}, [cell]))
    (curve,) = found.curves
    assert (curve.method, curve.points[0].draft_length) == ("engine:fast", 3)
    assert curve.points[0].length == 2.0  # the round in which the text ended does not count


def of_texts(decoder, settings, *drafted, budget=50) -> list[Curve]:
    """The curves of an experiment of texts with these drafts, of which each round accepts one."""
    asked = {"decoder": decoder, "settings": settings, "pair": "p", "max_new_tokens": budget}
    outputs = [sample(i, gained=[2] * len(d), drafted=d) for i, d in enumerate(drafted)]
    rows = {i: row("c", i, [each]) for i, each in enumerate(outputs)}
    cell = Kept("part", "c", decoder, "block", 1, asked, rows)
    found = gather.of_report(Report("x", None, SimpleNamespace(id="abc"), {}, [cell]))
    return [curve for curve in found.curves if curve.category == "all"]


@pytest.mark.parametrize(
    ("decoder", "settings", "name", "length"),
    [
        ("lookup", {"copy": 5}, "lookup", 5),
        ("suffix", {}, "suffix", 24),
        ("speculative", {"draft_length": "auto"}, "speculative draft_length=auto", 3),
        ("engine:fast", {}, "engine:fast", 3),
        ("engine:fast", {"draft_length": 4}, "engine:fast", 4),
    ],
)
def test_texts_are_not_sorted_by_how_long_their_drafts_came_out(decoder, settings, name, length):
    """Each text had its longest draft for its draft length, and with "auto" the usual name."""
    (curve,) = of_texts(decoder, settings, [0, 1, 1, 1], [0, 3, 1, 1], [0, 2, 2, 2])
    (point,) = curve.points
    assert (curve.method, point.draft_length, point.tree) == (name, length, False)
    assert point.rounds == 6  # but for the last of each text, which may have ended it


def test_suffixes_as_a_tree_count_its_nodes():
    """Its drafts have no more nodes than a chain has tokens, so it was exported as a chain."""
    (curve,) = of_texts("suffix", {"shape": "tree"}, [4, 4, 4, 4])
    (point,) = curve.points
    assert (curve.method, point.draft_length, point.drafted) == ("suffix shape=tree", 24, 4)
    with pytest.raises(InputError, match="drafts trees"):
        vllm.write(point)


def test_every_decoder_that_drafts_says_how_long_or_has_no_such_setting():
    unknown = {name for name, method in catalog.items() if not gather.depth(method())}
    assert unknown == {"greedy", "multinomial", "beam_search", "beam_sampling", "mtjd"}
