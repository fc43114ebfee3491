"""Plans: their parts spelled out, and every fault named."""

import pytest

from decoders import InputError, catalog
from tests.workbench.experiments.test_cells import cells_of
from workbench.experiments import plan as plans
from workbench.experiments.cells import label
from workbench.experiments.plan import parse
from workbench.models.presets import PAIRS
from workbench.studies.study import schemes_at


def test_a_plan_has_defaults_and_grids():
    grid = '{name = "mtad", beams = [2, 4], threshold = [0.1, 0.9]}'
    plan = parse(f'[[part]]\ndecoders = ["greedy", {grid}]', "mine.toml")
    (part,) = plan.parts
    assert (plan.name, part.name, part.prompts) == ("mine", "part 1", ("stories",))
    assert part.timed
    greedy, *others = part.methods
    assert greedy == catalog["greedy"]()
    values = [(beams, threshold) for beams in (2, 4) for threshold in (0.1, 0.9)]
    assert others == [catalog["mtad"](beams=b, threshold=t) for b, t in values]


@pytest.mark.parametrize(
    ("value", "found"), [("[2, 1]", [(2, 1)]), ("[[2, 1], [3]]", [(2, 1), (3,)])]
)
def test_a_list_is_a_value_for_a_setting_that_is_a_list_and_a_list_of_lists_is_its_grid(
    value, found
):
    text = f'[[part]]\ndecoders = [{{name = "specinfer", expansion = {value}}}]'
    (part,) = parse(text, "a.toml").parts
    assert [method.expansion for method in part.methods] == found


def test_a_part_may_begin_with_the_settings_that_are_tuned_for_the_pair(monkeypatch):
    own = {"mtad": {"beams": 2, "draft_length": 6}, "specinfer": {"expansion": [2, 2]}}
    monkeypatch.setattr(plans, "tuned", lambda: own)
    text = '[[part]]\nsettings = "{}"\ndecoders = ["specinfer", {{name = "mtad", beams = [3, 4]}}]'
    tuned, usual = (
        parse(text.format(kind), "a.toml").parts[0].methods for kind in ("tuned", "defaults")
    )
    assert [m.expansion for m in tuned[:1]] == [(2, 2)]
    assert [(m.beams, m.draft_length) for m in tuned[1:]] == [(3, 6), (4, 6)]
    assert usual == (catalog["specinfer"](), catalog["mtad"](beams=3), catalog["mtad"](beams=4))
    every = parse('[[part]]\nsettings = "tuned"\ndecoders = ["all"]', "a.toml").parts[0].methods
    assert {m.name for m in every} == set(catalog)
    assert catalog["mtad"](**own["mtad"]) in every


def test_pairs_are_presets_or_lists_of_models():
    _, name, *_ = PAIRS
    text = f'[[part]]\npairs = ["embedded", "{name}", ["a/b", "c/d"]]\ndecoders = ["all"]'
    (part,) = parse(text, "a.toml").parts
    assert [p.target for p in part.pairs] == [None, PAIRS[name].choice().target, "a/b"]
    assert {m.name for m in part.methods} == set(catalog)


@pytest.mark.parametrize(("text", "says"), [
    ("title = ", "bad.toml is not TOML: Invalid value (at end of document)"),
    ("", "has no [[part]]"),
    ('[[part]]\ndecoders = ["greedy"]\n[[engine]]\nname = "fast"',
        "bad.toml: Plans no longer ask servers of other engines"),
    ('titel = "x"\n[[part]]\ndecoders = ["greedy"]',
        "bad.toml: there is no key 'titel': did you mean 'title'?"),
    ('[[part]]\ntempreature = 1\ndecoders = ["greedy"]',
        "part 1 (part 1): there is no key 'tempreature': did you mean 'temperature'?"),
    ('[[part]]\ndecoders = ["gredy"]', "there is no decoder 'gredy': did you mean 'greedy'?"),
    ('[[part]]\ndecoders = [{name = "mtad", beems = 2}]', "mtad has no setting 'beems'"),
    ('[[part]]\ndecoders = [{name = "mtad", beams = 0}]', "mtad: beams must be"),
    ('[[part]]\ndecoders = ["greedy"]\nlimit = 0',
        "`limit`: input should be greater than or equal to 1"),
    ('[[part]]\ndecoders = ["greedy"]\ntimed = "no"',
        "`timed`: input should be a valid boolean, not 'no'."),
    ('[[part]]\ndecoders = ["greedy"]\nbatch_sizes = [0]',
        "`batch_sizes`: input should be greater than or equal to 1"),
    ('[[part]]\ndecoders = ["greedy"]\nbatch_sizes = [2]\ntimed = false', "are about speed"),
    ('[[part]]\ndecoders = ["greedy"]\npairs = ["lama"]', "there is no pair 'lama'"),
    ('[[part]]\ndecoders = ["greedy"]\nsettings = "tuned"\npairs = [["a", "b"]]',
        'only the pair "embedded" has tuned settings'),
    ('[[part]]\nname = "a"\ndecoders = ["greedy"]\n[[part]]\nname = "a"\ndecoders = ["greedy"]',
        "two parts are named 'a'"),
    (f'[[part]]\ndecoders = ["greedy"]\nseeds = {list(range(6000))}', "6,000 cells"),
    (f'[[part]]\ndecoders = [{{name = "mtad", beams = {list(range(1, 101))}, '
        f"draft_length = {list(range(1, 101))}}}]", "10,000 combinations"),
    ('[part]\ndecoders = ["greedy"]', "write `part` as [[part]]"),
    ('[[part]]\ndecoders = ["greedy"]\n[[draw]]\nkind = "pie"',
        "draw 1: `kind`: input should be 'curve' or 'front', not 'pie'."),
    ('[[part]]\ndecoders = ["greedy"]\n[[draw]]\nkind = "curve"\nx = "beams"\ny = ["speed"]',
        "there is no figure 'speed'"),
    ('[[part]]\ndecoders = ["greedy"]\n[[ordering]]\nsays = "a"\nsource = "b"\npart = "c"\n'
        'figure = "tokens/s"\nless = "a"\nthan = "b"',
        "there is no part 'c'"),
    ('[[part]]\ndecoders = ["greedy"]\n'
        '[[printed]]\ncolumns = ["tokens/s"]\nrows = {a = [1, 2]}',
        "row 'a' must have 1 figures"),
])  # fmt: skip
def test_a_fault_is_one_sentence_that_names_the_key(text, says):
    with pytest.raises(InputError) as caught:
        parse(text, "bad.toml")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("bad.toml")


def test_a_syntax_error_names_its_line():
    with pytest.raises(InputError, match="at line 3"):
        parse('title = "x"\n[[part]]\ndecoders = greedy\n', "bad.toml")


def test_every_shipped_plan_is_read_and_its_orderings_name_cells_that_it_has():
    for name in plans.shipped():
        plan = plans.find(name)
        assert plan.title
        assert plan.name == name
        for ordering in plan.orderings:
            part = next(p for p in plan.parts if p.name == ordering.part)
            labels = {label(cell, part) for cell in cells_of(part)}
            assert {ordering.less, ordering.than} <= labels, name
        assert schemes_at(1, ("vanilla",)) == ["unpadded"]


def test_a_plan_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(InputError, match="did you mean 'stories'"):
        plans.find("storys")
    with pytest.raises(InputError, match="cannot be read"):
        plans.read(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not text in UTF-8"):
        plans.read(tmp_path / "b.toml")
    (tmp_path / "c.toml").write_text("#" * 300_000)
    with pytest.raises(InputError, match="larger than"):
        plans.read(tmp_path / "c.toml")
