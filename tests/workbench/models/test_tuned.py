"""Settings that are kept with a pair: one place reads them, and says what is wrong with them."""

import json

import pytest

from decoders import InputError, catalog
from workbench.models.presets import EMBEDDED, PAIRS, SMOLLM2, PairChoice, pair_settings, tuned
from workbench.studies.settings import Settings

OURS = EMBEDDED, SMOLLM2


@pytest.fixture
def pair(tmp_path):
    """A function that makes a folder of a pair with this file of settings."""

    def made(text: str | None) -> PairChoice:
        (tmp_path / "target").mkdir(exist_ok=True)
        if text is not None:
            (tmp_path / "settings.json").write_text(text)
        return PairChoice(str(tmp_path))

    return made


def test_a_folder_keeps_settings_for_one_use_or_for_several(pair):
    two = {"mtad": {"draft_length": 6}, "dsbd": [{"draft_beams": 6}, {"draft_beams": 3}]}
    choice = pair(json.dumps(two))
    assert tuned(choice) == {"mtad": {"draft_length": 6}, "dsbd": {"draft_beams": 6}}
    assert pair_settings(choice)["dsbd"] == [{"draft_beams": 6}, {"draft_beams": 3}]


@pytest.mark.parametrize("preset", OURS, ids=lambda preset: preset.name)
def test_the_pairs_of_this_package_have_settings_that_differ_from_the_librarys(preset):
    usual = Settings.from_json({"decoders": [*catalog]})
    own = tuned(preset.choice())
    assert Settings.from_json({**own, "decoders": [*catalog]}) != usual
    assert all(own == tuned(preset.choice(device)) for device in ("cpu", "cuda"))


@pytest.mark.parametrize("text", [None, "", "{", "[]", "3", "[" * 100_000, '{"mtad": ', "\0"])
def test_a_missing_or_damaged_file_means_the_defaults(pair, text):
    assert tuned(pair(text)) == {}


def test_pairs_that_lie_in_no_one_folder_have_none(pair, tmp_path):
    choice = pair('{"mtad": {"draft_length": 6}}')
    assert tuned(PairChoice(choice.target, "another/draft")) == {}
    assert all(tuned(preset.choice()) == {} for preset in PAIRS.values() if preset not in OURS)
    assert tuned(PairChoice(str(tmp_path / "target"))) == {}
    assert tuned(PairChoice("\0")) == {}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"mtadd": {}}, "There is no decoder 'mtadd': did you mean 'mtad'"),
        ({"mtad": {"beems": 2}}, "mtad has no setting 'beems': did you mean 'beams'"),
        ({"mtad": {"beams": 0}}, "mtad: beams must be"),
        ({"mtad": {"threshold": float("nan")}}, "mtad: threshold must be"),
        ({"mtad": 3}, "one JSON object or several in a list, not 3"),
        ({"mtad": []}, "one JSON object or several in a list, not []"),
        ({"mtad": [{}, {"beams": "two"}]}, "mtad: beams must be"),
    ],
)
def test_what_is_unknown_or_out_of_range_is_one_sentence_that_names_the_file(pair, settings, says):
    with pytest.raises(InputError, match=r"settings\.json") as error:
        tuned(pair(json.dumps(settings)))
    assert says in str(error.value)
    assert "\n" not in str(error.value)
