"""The card that advises on the pair that is loaded, as a visitor uses it."""

import pytest

from tests.workbench.page.conftest import a_host
from tests.workbench.page.visitor import Visitor
from workbench.page.layout import build


@pytest.fixture
def host(pair, tmp_path):
    return a_host(pair, tmp_path)


@pytest.fixture
def page(host):
    return build(host)


def test_advice_is_given_kept_and_opened_again(host, page):
    """It was kept nowhere."""
    visitor = Visitor(page, "kind=advice&count=2&temperature=0&max_new_tokens=8&decoders=lookup")
    assert visitor.value(visitor.find("advice-count")) == 2
    visitor.press("advice-run")
    assert visitor.breakdowns == []
    said = visitor.value(visitor.find("advice-figures"))
    assert "predicted x greedy" in said
    assert "at temperature 0" in said
    assert "Done" in visitor.value(visitor.find("advice-progress"))
    (listed,) = host.store.list(kind="advice")
    again = Visitor(page, f"run={listed.id}")
    assert again.value(again.find("advice-figures")) == said
    assert again.value(again.find("advice-count")) == 2
    assert again.value(again.find("advice-temperature")) == 0


def test_what_cannot_be_advised_on_is_refused_at_its_field(page):
    visitor = Visitor(page)
    visitor.put("advice-count", 21)
    visitor.press("advice-run")
    assert "at most 20 prompts" in visitor.message("advice-count")
    visitor.put("advice-count", None)
    visitor.press("advice-run")
    assert visitor.message("advice-count") == "Prompts is empty."


def test_limits_hold_for_advice_too(pair, tmp_path):
    """Advice ran whatever the place allowed."""
    visitor = Visitor(build(a_host(pair, tmp_path, max_new_tokens=8)))
    visitor.press("advice-run")
    assert "At most 8 new tokens here" in visitor.message("advice-count")
