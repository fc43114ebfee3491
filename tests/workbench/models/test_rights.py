"""Who may read a gated model, asked of a stand-in of the hub."""

import pytest

from decoders import InputError
from tests.hub import standing_in
from tests.models import save_small_pair
from workbench.models.keeper import PairError, PairKeeper
from workbench.models.presets import PairChoice
from workbench.models.rights import Account, Rights

ANNA, BERT = Account("anna", "hf_anna"), Account("bert", "hf_bert")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """With a gated model that Anna may read, and one that everybody may."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    save_small_pair(tmp_path / "pair")
    with standing_in() as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)
        template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(
            "huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False
        )
        hub.accounts = {each.token: each.name for each in (ANNA, BERT)}
        for name, role in (("maker/gated", "target"), ("maker/open", "draft")):
            files = sorted((tmp_path / "pair" / role).iterdir())
            hub.models[name] = {file.name: file.read_bytes() for file in files}
        hub.gated["maker/gated"] = {"anna"}
        yield hub


def test_the_hub_says_who_may_read(hub):
    rights = Rights(hub.address)
    both = ["maker/gated@main", "maker/open"]
    assert rights.token(["maker/open"], None) is None
    assert rights.token(["maker/open"], BERT) is None  # nobody's token is used without need
    assert rights.token(both, ANNA) == "hf_anna"
    with pytest.raises(InputError, match=r"maker/gated is gated, or not there: .* sign in"):
        rights.token(both, None)
    with pytest.raises(InputError, match="the account bert may not read it"):
        rights.token(both, BERT)
    with pytest.raises(InputError, match="maker/none is gated, or not there"):
        rights.token(["maker/none"], None)


def test_a_yes_holds_for_a_while_and_a_no_does_not(hub):
    lasting, fleeting = Rights(hub.address), Rights(hub.address, seconds=0.0)
    for rights in (lasting, fleeting):
        assert rights.token(["maker/gated"], ANNA)
        with pytest.raises(InputError):
            rights.token(["maker/gated"], BERT)
    hub.gated["maker/gated"] = {"bert"}
    assert lasting.token(["maker/gated"], ANNA)
    assert lasting.token(["maker/gated"], BERT)
    with pytest.raises(InputError):
        fleeting.token(["maker/gated"], ANNA)
    hub.down = True
    with pytest.raises(InputError, match="The hub does not say who may read maker/gated"):
        fleeting.token(["maker/gated"], BERT)


def test_what_one_visitor_has_loaded_is_not_everybodys(hub):
    """Weights that a visitor fetched with an own right lay in memory and on the disk for all."""
    keeper = PairKeeper(rights=Rights(hub.address, seconds=0.0))
    gated = {"target": "maker/gated", "draft": "maker/open", "device": "cpu"}
    mine = keeper.get(PairChoice(**gated, account=ANNA))
    assert keeper.get(PairChoice(**gated, account=ANNA)) is mine
    for other in (None, BERT):  # in memory
        with pytest.raises(PairError, match="maker/gated is gated"):
            keeper.get(PairChoice(**gated, account=other))
    keeper.get(PairChoice("maker/open", device="cpu"))
    for other in (None, BERT):  # on the disk
        with pytest.raises(PairError, match="maker/gated is gated"):
            keeper.get(PairChoice(**gated, account=other))
    hub.down = True  # and no file is taken from there while nobody can say
    with pytest.raises(PairError, match="does not say who may read maker/gated"):
        keeper.get(PairChoice(**gated, account=BERT))
    assert keeper.get(PairChoice("maker/open", device="cpu"))  # it is everybody's


def test_an_account_is_no_part_of_a_choice():
    """Neither of what it equals nor of what a log would show."""
    mine, other = PairChoice("a/b", account=ANNA), PairChoice("a/b", account=BERT)
    assert mine == other == PairChoice("a/b")
    assert hash(mine) == hash(other)
    assert "hf_anna" not in repr(mine)
