"""Settings and prompts by name."""

from workbench.studies.presets import PROMPTS, SETTINGS


def test_the_papers_settings_are_the_papers():
    mtad, dsbd = SETTINGS["MTAD paper"].to_json(), SETTINGS["DSBD paper"].to_json()
    assert (
        mtad["top_k"],
        mtad["top_p"],
        mtad["mtad"]["draft_length"],
        mtad["mtad"]["beams"],
        mtad["mtad"]["threshold"],
    ) == (20, 0.9, 4, 8, 0.1)
    assert (dsbd["top_k"], dsbd["top_p"], dsbd["dsbd"]["draft_length"], dsbd["dsbd"]["draft_beams"]) == (10, 0.8, 2, 4)
    assert SETTINGS["greedy (T=0)"].temperature == 0
    assert all(
        s.to_json()["decoders"] == ["greedy", "beam_search", "speculative", "mtad", "dsbd"] for s in SETTINGS.values()
    )


def test_example_prompts_are_texts():
    assert len(PROMPTS) >= 3
    assert all(text.strip() == text for text in PROMPTS.values())
