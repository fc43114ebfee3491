"""Signing in with Hugging Face, of which Gradio and a stand-in of the hub play their parts here."""

import pytest
from gradio import oauth
from playwright.sync_api import expect

from tests.browser.actions import link, run, setting, unfold_form
from tests.browser.conftest import serving
from tests.hub import everywhere, standing_in
from tests.models import save_small_pair
from workbench.models.rights import Rights

MOCKED = "mock-oauth-token-for-local-dev"  # what Gradio gives off a Space
PROFILE = {"type": "user", "name": "anna", "fullname": "Anna", "avatarUrl": ""}
OWN = "anna/decoding-workbench-runs"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    save_small_pair(folder / "pair")
    patch = pytest.MonkeyPatch()
    with standing_in() as hub:
        hub.accounts = {MOCKED: "anna"}
        files = sorted((folder / "pair" / "target").iterdir())
        hub.models["maker/gated"] = {file.name: file.read_bytes() for file in files}
        hub.gated["maker/gated"] = {"anna"}
        everywhere(patch, hub, folder / "cache")
        patch.setattr(oauth, "get_token", lambda: "of this machine")
        patch.setattr(oauth, "whoami", lambda: PROFILE)
        patch.setenv("OAUTH_CLIENT_ID", "a-space")
        yield hub
    patch.undo()


@pytest.fixture(scope="module")
def space(hub, pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("space")
    with serving(pair, folder, public=True, custom_models=True) as (address, host):
        host.pairs._rights = Rights()
        yield address, host


def sign_in(page):
    models(page)
    with page.expect_navigation():
        page.locator("#sign-in").click()
    expect(page.locator("#opening")).to_have_count(0)
    expect(page.locator("#run")).to_be_enabled()
    models(page)
    expect(page.locator("#sign-in")).to_have_text("Sign out anna")


def models(page):
    unfold_form(page)
    page.locator("#models > button").click()


def load_gated(page):
    setting(page, "Pair").click()
    page.get_by_role("option", name="own models").click()
    page.locator("#own-target").get_by_role("textbox").fill("maker/gated")
    page.get_by_role("button", name="Load").click()


def test_runs_of_who_has_signed_in_are_kept_in_their_dataset(visit, space, hub):
    """Its link opens a run from there after the Space has forgotten it, for its owner alone."""
    address, host = space
    page = visit(link(address, "Once", decoders="greedy", max_new_tokens=4))
    sign_in(page)
    run(page)
    expect(page.locator("#own")).to_contain_text(f"Kept in your dataset {OWN}.")
    (path,) = hub.files[OWN]
    assert hub.private[OWN]
    id = path.removeprefix("runs/").removesuffix(".json")
    page.get_by_role("tab", name="Runs").click()
    expect(page.locator("#past-runs")).to_contain_text(hub.titles[path].partition(": ")[2][:20])
    host.store.delete(id)
    page.goto(f"{address}?run={id}")
    expect(page.locator("#run-link")).to_contain_text(id)
    host.store.delete(id)
    stranger = visit(f"{address}?run={id}")
    expect(stranger.locator("#notice")).to_contain_text(f"There is no run '{id}'")


def test_a_gated_model_is_loaded_with_the_visitors_own_right(visit, space):
    address, _ = space
    stranger, anna = visit(address), visit(address)
    models(stranger)
    load_gated(stranger)
    note = stranger.locator("#pair-note")
    expect(note).to_contain_text("maker/gated is gated, or not there: accept its licence")
    sign_in(anna)
    load_gated(anna)
    expect(anna.locator("#pair-note")).to_contain_text("In use: maker/gated", timeout=60_000)
    stranger.get_by_role("button", name="Load").click()  # now that it is in memory
    expect(note).to_contain_text("maker/gated is gated, or not there")


def test_nobody_is_asked_to_sign_in_elsewhere(page):
    expect(page.locator("#sign-in")).to_have_count(0)
