"""The component passes data, never markup: texts reach the page through textContent (tests/browser sees them there)."""

from workbench.page.widgets.token_strip import TokenStrip
from workbench.show.strip import view


def test_no_text_passes_a_template():
    strip = TokenStrip()
    config = strip.get_config()
    assert config["html_template"] == "<div></div>"
    assert config["css_template"] == ""


def test_its_value_goes_through_as_it_is():
    value = view(['{"text": "<b>${x} {{{y}}}</b>"}'], "id")
    assert TokenStrip().postprocess(value) == value
