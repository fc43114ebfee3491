"""What strangers may load on a shared device, asked of a stand-in of the hub."""

import pytest

from tests.hub import TOKEN, everywhere, standing_in
from tests.models import save_small_pair
from workbench.models.keeper import PairError, PairKeeper
from workbench.models.presets import PairChoice


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """With a model that everybody may read, and one that only the owner of the machine may."""
    save_small_pair(tmp_path / "pair")
    with standing_in() as hub:
        everywhere(monkeypatch, hub, tmp_path / "cache")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        for name, role in (("maker/gated", "target"), ("maker/open", "draft")):
            files = sorted((tmp_path / "pair" / role).iterdir())
            hub.models[name] = {file.name: file.read_bytes() for file in files}
        hub.gated["maker/gated"] = {hub.accounts[TOKEN]}
        yield hub


def test_strangers_load_what_everybody_may_read(hub):
    """The owner's token read gated models for every visitor who named one."""
    strangers = PairKeeper(public=True)
    assert strangers.get(PairChoice("maker/open", device="cpu"))
    for target, draft in (("maker/gated", None), ("maker/open", "maker/gated")):
        with pytest.raises(PairError, match="is gated, and this Space loads what everybody may"):
            strangers.get(PairChoice(target, draft, device="cpu"))
    assert PairKeeper().get(PairChoice("maker/gated", device="cpu"))  # its owner may


def test_strangers_read_no_file_of_the_machine(hub, tmp_path, monkeypatch):
    strangers, folder = PairKeeper(public=True), tmp_path / "pair"
    monkeypatch.chdir(folder)
    (folder / "weights.gguf").write_bytes(b"GGUF")
    for name, says in (
        (str(folder / "target"), "is no model of the hub; take a name"),
        ("target", "is a folder; name a model of the hub here"),
        ("weights.gguf", "is a file; name a model of the hub here"),
    ):
        with pytest.raises(PairError, match=says):
            strangers.get(PairChoice(name, device="cpu"))


@pytest.mark.parametrize("name", ["foo bar", "a/b/c", "../x", "a" * 5000, "a\0b", "a/b?c=d"])
def test_a_name_that_is_none_is_one_sentence(name):
    with pytest.raises(PairError, match=r"is no model of the hub; take a name .*\.$"):
        PairKeeper(public=True).get(PairChoice(name, device="cpu"))
