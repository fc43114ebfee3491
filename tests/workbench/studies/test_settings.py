import pytest

from decoders import InputError, catalog
from workbench.studies.settings import Settings


def test_settings_come_back_from_their_json():
    settings = Settings(
        (catalog["mtad"](beams=3), catalog["greedy"]()),
        temperature=0.5,
        repeats=2,
        chat_template=True,
    )
    assert Settings.from_json(settings.to_json()) == settings
    assert settings.to_json()["mtad"]["beams"] == 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "No decoder is chosen"),
        ({"decoders": []}, "No decoder is chosen"),
        ({"decoders": "greedy"}, "a list of names"),
        ({"decoders": [["greedy"]]}, "a list of names"),
        ({"decoders": ["gredy"]}, "did you mean 'greedy'"),
        ({"decoders": ["greedy", "greedy"]}, "chosen twice"),
        ({"decoders": ["greedy"], "temprature": 1}, "did you mean 'temperature'"),
        ({"decoders": ["greedy"], "temperature": -1}, "temperature must be"),
        ({"decoders": ["greedy"], "temperature": "warm"}, "temperature must be"),
        (
            {"decoders": ["greedy"], "max_new_tokens": 0},
            "max_new_tokens must be a whole number from 1",
        ),
        ({"decoders": ["greedy"], "max_new_tokens": 2.5}, "max_new_tokens must be"),
        ({"decoders": ["greedy"], "repeats": True}, "repeats must be"),
        ({"decoders": ["greedy"], "chat_template": 1}, "chat_template must be"),
        ({"decoders": ["mtad"], "mtad": {"beam": 2}}, "did you mean 'beams'"),
        ({"decoders": ["mtad"], "mtad": 3}, "one JSON object"),
        (["greedy"], "one JSON object"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(data, message):
    with pytest.raises(InputError, match=message) as refusal:
        Settings.from_json(data)
    assert "\n" not in str(refusal.value)
