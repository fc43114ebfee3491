"""docs/rules.md is made by the tool: its head says how, and reports are its parts."""

from types import SimpleNamespace

from tools import experiment


def test_the_page_begins_with_how_it_is_made():
    assert experiment.RULES.read_text(encoding="utf-8").startswith(experiment.HEAD)


def test_a_report_is_a_part_one_level_lower():
    text = "# Title\n\n## Chains\n\n- a"
    found = SimpleNamespace(
        plan=SimpleNamespace(name="rules"), progress=SimpleNamespace(id="0123456789ab")
    )
    assert experiment.part(found, text).startswith("\n## Title\n\n### Chains\n\n- a\n")
    assert "experiment rules` (experiment 0123456789ab)" in experiment.part(found, text)
