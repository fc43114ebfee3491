"""Profiles: what is counted, their files in three formats, and those that are refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from decoders import InputError
from workbench.profiles import files, inferencex, vllm
from workbench.profiles.profile import Curve, Point, Profile, loads

GOLDEN = """# Source GitHub Actions run: https://github.com/SemiAnalysisAI/InferenceX/actions/runs/1
# dataset: coding | temperature: 1.0 | output_len: 4096
# key = num_speculative_tokens (MTP level); value = golden AL
qwen:
  thinking_on:
    1: 1.93
    2: 2.73
  thinking_off:
    1: 1.92
"""


def a_profile(**changes) -> Profile:
    points = (Point(1, 1.5, (0.5,), 1.0, 1.0, 40), Point(3, 2.2, (0.7, 0.3, 0.2), 3.0, 1.0, 30))
    curves = (Curve("speculative", "all", points), Curve("block", "all", points[:1]))
    return replace(Profile("run 1", "large", "small", 1.0, curves), **changes)


def in_file(folder: Path, text: str, name: str = "given.json") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# ---- files


def test_our_file_comes_back_the_same(tmp_path):
    found = a_profile(temperature=None, draft="")
    assert files.read(in_file(tmp_path, found.dumps())) == found


rates = st.lists(st.floats(0, 1), min_size=1, max_size=9).map(
    lambda each: tuple(sorted(each, reverse=True))
)


@given(rates)
def test_rates_come_back_from_vllm_and_lengths_from_inferencex(given_rates):
    """To the four and the two decimals that the files have."""
    point = Point(len(given_rates), 1 + sum(given_rates), given_rates)
    curve = Curve("mine", "all", (point,))
    (back,) = vllm.read(json.loads(vllm.write(point)), "mine").curves[0].points
    assert back.rates == pytest.approx(given_rates, abs=6e-5)
    text = inferencex.write(Profile("run 1", "m", "", None, (curve,)), curve)
    (curve,) = inferencex.read(text, "mine").curves
    assert curve.points[0].length == pytest.approx(point.length, abs=6e-3)
    assert (curve.method, curve.category) == ("mine", "all")


def test_a_golden_curve_has_its_modes_and_its_category(tmp_path):
    found = files.read(in_file(tmp_path, GOLDEN, "qwen3.5_mtp.yaml"))
    assert found.target == "qwen"
    names = [(curve.method, curve.category) for curve in found.curves]
    assert names == [
        ("qwen3.5_mtp", "coding, thinking_on"),
        ("qwen3.5_mtp", "coding, thinking_off"),
    ]
    assert [p.length for p in found.curves[0].points] == [1.93, 2.73]


@pytest.mark.parametrize("text", ["m: {1: 1.5, 2: 2}", "m: [{1: 1.5}, {2: 2}]"])
def test_the_other_shapes_of_inferencex_are_read_too(text):
    (curve,) = inferencex.read(text, "m").curves
    assert [p.length for p in curve.points] == [1.5, 2.0]


@pytest.mark.parametrize("value", ["!!bool x", "!!int ''", "!!float ''", "!!timestamp x"])
def test_a_tag_that_does_not_fit_its_value_is_one_sentence(value):
    """PyYAML fails there with a KeyError, an IndexError or an AttributeError."""
    with pytest.raises(InputError, match="neither JSON nor YAML; give a profile"):
        inferencex.read(f"a: {value}", "m")


def test_a_mean_length_becomes_the_rates_that_vllm_makes_of_it():
    config = {"num_speculative_tokens": 4, "rejection_sample_method": "synthetic"}
    found = vllm.read({**config, "synthetic_acceptance_length": 3.25, "method": "eagle3"}, "x")
    (point,) = found.curves[0].points
    assert point.rates == pytest.approx((1.0, 1.0, 0.25, 0.0))
    assert point.length == pytest.approx(3.25)
    assert found.curves[0].method == "eagle3"


def test_a_name_cannot_end_the_comment_of_a_file():
    found = a_profile(source="run 1\nevil: {1: 2}")
    written = yaml.safe_load(inferencex.write(found, found.curves[0]))
    assert written == {"large": {1: 1.5, 3: 2.2}}


# ---- files that are refused


def changed(**fields) -> str:
    return json.dumps({**json.loads(a_profile().dumps()), **fields})


def point(**fields) -> str:
    one = {"draft_length": 2, "length": 1.5, **fields}
    return changed(curves=[{"method": "m", "category": "all", "points": [one]}])


CONFIG = {"num_speculative_tokens": 2, "rejection_sample_method": "synthetic"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "This profile cannot be used: source: field required"),
        (changed(version=2), "version"),
        (changed(format="x"), "format"),
        (changed(curves=[]), "curves"),
        (changed(extra=1), "extra"),
        (changed(temperature=-1), "temperature"),
        (changed(target="m" * 300), "target"),
        (point(length=0.5), "length"),
        (point(length=3.5), "too long: it counts the target's token"),
        (point(length="many"), "length"),
        (point(rates=[0.5]), "there are 1 rates"),
        (point(rates=[0.2, 0.3]), "the rates grow"),
        (point(rates=[1.5, 0.0]), "rates"),
        (point(rates=[0.9, 0.9]), "not 1 and the sum of the rates"),
        (point(share=0), "share"),
        (point(drafted=0), "drafted"),
        (point(rounds=0), "rounds"),
        (point(draft_length=0), "draft_length"),
        ('{"source": NaN}', "source"),
        (json.dumps(CONFIG), "no synthetic acceptance"),
        (json.dumps({**CONFIG, "synthetic_acceptance_length": 4}), "from 1.0 to 3.0"),
        (json.dumps({**CONFIG, "synthetic_acceptance_length": "2"}), "a number from"),
        (json.dumps({**CONFIG, "synthetic_acceptance_rates": [0.5, 2]}), "from 0.0 to 1.0"),
        (json.dumps({**CONFIG, "synthetic_acceptance_rates": [0.5]}), "there are 1 rates"),
        (json.dumps({**CONFIG, "synthetic_acceptance_rates": [0.1, 0.5]}), "the rates grow"),
        (json.dumps({**CONFIG, "num_speculative_tokens": 0, "synthetic_acceptance_length": 1}),
         "num_speculative_tokens must be"),
        (json.dumps({**CONFIG, "synthetic_acceptance_rates": 0.5}), "must be a list"),
        (json.dumps({**CONFIG, "synthetic_acceptance_length": 2, "synthetic_acceptance_rates": []}),
         "no synthetic acceptance"),
        ("[1, 2]", "no acceptance curve of InferenceX"),
        ("just words", "no acceptance curve of InferenceX"),
        ("m: {a: {x: 2}}", "m.a.x"),
        ("m: {1: 2.5}", "m.1 is 2.5"),
        ("m: {1: true}", "m.1 is True"),
        ("m: {}", "no acceptance curve"),
        ("m: {a: {}, b: {1: 1.5}}", "m.a"),
        ("m: {a: {b: {1: 1.5}}}", "m.a.b"),
        ("{a: [", "neither JSON nor YAML"),
        ("", "no acceptance curve"),
        ("# " + "x" * 70_000, "too large for an acceptance curve"),
        ("{" + " " * (2**20 + 1), "too large for a profile"),
        ("[" * 5_000, "neither JSON nor YAML"),
        ('{"format": "decoding-workbench run"}', "not a run"),
        (changed(curves=[{"method": "m", "category": "c", "points": [
            {"draft_length": 2, "length": 1.5}, {"draft_length": 1, "length": 1.5}]}]),
         "from the shortest on"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_refused_in_a_sentence(tmp_path, text, says):
    with pytest.raises(InputError) as caught:
        files.read(in_file(tmp_path, text))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_what_is_no_file_of_text_is_refused(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xff\xfe")
    for path, says in ((tmp_path / "x.json", "not text"), (tmp_path, "cannot be read")):
        with pytest.raises(InputError, match=says):
            files.read(path)
    with pytest.raises(InputError, match="cannot be read"):
        files.read(tmp_path / "none.json")


def test_a_curve_is_named_if_there_are_several():
    found = a_profile()
    assert found.curve("block").method == "block"
    for names, says in (
        ((None, "all"), "Several curves fit"),
        (("x", None), "No curve fits"),
    ):
        with pytest.raises(InputError, match=f"{says}.*“speculative” “all”; “block” “all”"):
            found.curve(*names)
    with pytest.raises(InputError, match="has no draft length 2; it has 1, 3"):
        found.curve("speculative").at(2)
    assert loads(json.loads(found.dumps())) == found
