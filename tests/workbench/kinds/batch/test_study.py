"""A batch is a set of prompts, decoded at several sizes and in several schemes beside greedy."""

import pytest

from decoders import InputError, catalog
from workbench.kinds.batch import Batch
from workbench.studies.prompts import Prompt, PromptSet, built_in
from workbench.studies.settings import Settings
from workbench.studies.study import SCHEMES, least_budget

FEW = PromptSet(
    "few", tuple(Prompt(text, f"few, prompt {i}") for i, text in enumerate(("abab", "one two"), 1))
)


def batch(*names: str, prompts=FEW, sizes=(1, 3), **changes) -> Batch:
    return Batch(prompts, Settings(tuple(catalog[n]() for n in names), seed=5), sizes, **changes)


def test_the_baseline_runs_once_in_static_and_once_in_dynamic_batches():
    jobs = batch("greedy", "lookup", schemes=("vanilla", "dynamic")).jobs()
    assert [(j.method.name, j.batch_size, j.scheme) for j in jobs] == [
        ("greedy", 1, "unpadded"), ("lookup", 1, "unpadded"),
        ("greedy", 3, "unpadded"), ("greedy", 3, "dynamic"), ("lookup", 3, "vanilla"),
        ("lookup", 3, "dynamic"),
    ]  # fmt: skip


def test_greedy_runs_also_if_it_is_not_chosen_and_sizes_go_up_once_each():
    jobs = batch("lookup", sizes=(4, 1, 4), schemes=("unpadded",)).jobs()
    assert [(j.method.name, j.batch_size) for j in jobs] == [
        ("greedy", 1),
        ("lookup", 1),
        ("greedy", 4),
        ("lookup", 4),
    ]


def test_what_a_round_gains_is_kept_once_for_each_decoder():
    keeps = [(j.method.name, j.keep) for j in batch("lookup", schemes=("unpadded",)).jobs()]
    assert keeps == [
        ("greedy", "lengths"),
        ("lookup", "lengths"),
        ("greedy", "figures"),
        ("lookup", "figures"),
    ]


def test_each_repeat_has_the_next_seed():
    study = Batch(FEW, Settings((catalog["lookup"](),), seed=5, repeats=2), (1,))
    assert [(j.repeat, j.seed) for j in study.jobs()] == [(0, 5), (0, 5), (1, 6), (1, 6)]


def test_jobs_carry_the_scheme_and_the_bounds_to_the_library():
    study = batch(
        "lookup", sizes=(2,), schemes=("unpadded",), cache_mb=2.5, prefill_chunk=7, ignore_eos=False
    )
    assert study.jobs()[-1].batching == {
        "max_batch": 2, "padding": "none", "ignore_eos": False, "max_cache_bytes": 2_500_000,
        "prefill_chunk": 7,
    }  # fmt: skip


def test_prompts_are_read_apart_only_in_static_batches_without_bounds():
    apart = {j.scheme: j.reads_prompts_apart for j in batch("lookup", sizes=(2,)).jobs()}
    assert apart == {name: scheme.static for name, scheme in SCHEMES.items()}
    assert not any(
        j.reads_prompts_apart for j in batch("lookup", sizes=(2,), prefill_chunk=4).jobs()
    )
    assert all(j.reads_prompts_apart for j in batch("lookup", sizes=(1,), prefill_chunk=4).jobs())


@pytest.mark.parametrize("prompts", [FEW, built_in("refrains").first(3)], ids=["typed", "built in"])
def test_it_comes_back_from_its_json(prompts):
    study = batch(
        "lookup",
        prompts=prompts,
        schemes=("dynamic",),
        cache_mb=2.0,
        prefill_chunk=7,
        ignore_eos=False,
    )
    assert Batch.from_json(study.to_json()) == study
    assert study.title == f"{len(prompts.prompts)} {prompts.name}"


def test_texts_of_a_file_go_into_the_json_and_built_in_ones_do_not():
    assert batch("lookup").to_json()["prompts"] == {
        "name": "few",
        "count": 2,
        "texts": ["abab", "one two"],
    }
    data = batch("lookup", prompts=built_in("stories").first(2)).to_json()
    assert data["prompts"] == {"name": "stories", "count": 2, "texts": None}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sizes": (0,)}, "A batch size must be a whole number from 1"),
        ({"sizes": (True,)}, "A batch size must be"),
        ({"sizes": ("8",)}, "A batch size must be"),
        ({"sizes": ()}, "choose at least one of each"),
        ({"schemes": ("vanila",)}, "did you mean 'vanilla'"),
        ({"schemes": ()}, "choose at least one of each"),
        ({"cache_mb": 0}, "cache_mb must be None or a number from 0.01"),
        ({"prefill_chunk": 2.5}, "prefill_chunk must be None or a whole number from 1"),
        (
            {"cache_mb": 1.0},
            (
                r"schemes that pad nothing: leave out padded \(usual\), unpadded cache, unpadded "
                r"inputs, or"
            ),
        ),
    ],
)
def test_what_cannot_be_is_refused(changes, says):
    with pytest.raises(InputError, match=says):
        batch("lookup", **changes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"settings": None}, "one JSON object"),
        ({"settings": ["lookup"]}, "one JSON object"),
        ({"settings": {"decoders": ["lookup"], "sizes": 3}}, "`sizes` must be a list"),
        ({"settings": {"decoders": ["lookup"], "schemes": "vanilla"}}, "`schemes` must be a list"),
        ({"settings": {"decoders": ["lookup"], "schemes": [["vanilla"]]}}, "no scheme"),
        ({"settings": {"decoders": ["lookup"], "ignore_eos": "no"}}, "ignore_eos"),
        ({"settings": {"decoders": ["lookup"], "ways": ["vanilla"]}}, "no setting 'ways'"),
        ({"prompts": None}, "have a name"),
        ({"prompts": {"name": "mine.txt", "texts": None}}, "not part of this study"),
        ({"prompts": {"name": "mine.txt", "texts": ["a", 5]}}, "not part of this study"),
        ({"prompts": {"name": "stories", "count": "all"}}, "number of prompts"),
    ],
)
def test_json_that_cannot_be_used_is_one_sentence(change, says):
    data = {**batch("lookup").to_json(), **change}
    with pytest.raises(InputError, match=says) as refusal:
        Batch.from_json(data)
    assert "\n" not in str(refusal.value)


def test_the_least_budget_is_rounded_up_to_a_hundredth():
    assert [least_budget(n) for n in (1, 10_000, 10_001)] == [0.01, 0.01, 0.02]
