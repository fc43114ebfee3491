"""The components pass data, never markup: texts reach the page through textContent.

The tests in tests/browser see them there."""

import pytest

from workbench.kinds.comparison import strip
from workbench.page.widgets import RunTable, TokenStrip

VALUES = {
    TokenStrip: strip(['{"text": "<b>${x} {{{y}}}</b>"}'], "id"),
    RunTable: {"rows": [{"id": "ab", "title": "<b>${x} {{{y}}}</b>"}], "chosen": []},
}


@pytest.mark.parametrize("component", VALUES)
def test_no_text_passes_a_template(component):
    config = component().get_config()
    assert config["html_template"] == "<div></div>"
    assert config["css_template"] == ""


@pytest.mark.parametrize("component", VALUES)
def test_a_value_goes_through_as_it_is(component):
    assert component().postprocess(VALUES[component]) == VALUES[component]
