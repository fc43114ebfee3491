"""Who may read a gated model, asked of a stand-in of the hub."""

import pytest

from decoders import InputError
from tests.hub import everywhere, standing_in
from tests.models import save_small_pair
from workbench.models.keeper import PairError, PairKeeper
from workbench.models.presets import EMBEDDED, HEAD, SMOLLM2, PairChoice
from workbench.models.rights import Account, Rights

ANNA, BERT = Account("anna", "hf_anna"), Account("bert", "hf_bert")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """With a gated model that Anna may read, and one that everybody may."""
    save_small_pair(tmp_path / "pair")
    with standing_in() as hub:
        everywhere(monkeypatch, hub, tmp_path / "cache")
        hub.accounts = {each.token: each.name for each in (ANNA, BERT)}
        for name, role in (("maker/gated", "target"), ("maker/open", "draft")):
            files = sorted((tmp_path / "pair" / role).iterdir())
            hub.models[name] = {file.name: file.read_bytes() for file in files}
        hub.gated["maker/gated"] = {"anna"}
        yield hub


def test_the_hub_says_who_may_read(hub):
    rights = Rights(hub.address)
    both = "maker/gated@main", "maker/open"
    assert rights.token("maker/open", None, None) is None
    assert rights.token("maker/open", None, BERT) is None  # no token is used without need
    assert rights.token(*both, ANNA) == "hf_anna"
    with pytest.raises(InputError, match=r"maker/gated is gated, or not there: .* sign in"):
        rights.token(*both, None)
    with pytest.raises(InputError, match="the account bert may not read it"):
        rights.token(*both, BERT)
    with pytest.raises(InputError, match="maker/none is gated, or not there"):
        rights.token("maker/none", None, None)


def test_a_yes_holds_for_a_while_and_a_no_does_not(hub):
    lasting, fleeting = Rights(hub.address), Rights(hub.address, holds=0.0)
    for rights in (lasting, fleeting):
        assert rights.token("maker/gated", None, ANNA)
        with pytest.raises(InputError):
            rights.token("maker/gated", None, BERT)
    hub.gated["maker/gated"] = {"bert"}
    assert lasting.token("maker/gated", None, ANNA)
    assert lasting.token("maker/gated", None, BERT)
    with pytest.raises(InputError):
        fleeting.token("maker/gated", None, ANNA)
    hub.down = True
    with pytest.raises(InputError, match="The hub does not say who may read maker/gated"):
        fleeting.token("maker/gated", None, BERT)


def test_what_one_visitor_has_loaded_is_not_everybodys(hub):
    """Weights that a visitor fetched with an own right lay in memory and on the disk for all."""
    keeper = PairKeeper(rights=Rights(hub.address, holds=0.0))
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


def test_what_another_has_fetched_is_not_read_from_its_folder(hub, tmp_path, monkeypatch):
    """A stranger who named the folder of the hub's cache had Anna's gated weights."""
    keeper = PairKeeper(rights=Rights(hub.address))
    keeper.get(PairChoice("maker/gated", device="cpu", account=ANNA))
    (weights,) = (tmp_path / "cache").rglob("model.safetensors")
    for other in (None, BERT):
        with pytest.raises(PairError, match="is no model of the hub; take a name"):
            keeper.get(PairChoice(str(weights.parent), device="cpu", account=other))
    monkeypatch.chdir(weights.parents[1])
    with pytest.raises(PairError, match="is a folder; name a model of the hub here"):
        keeper.get(PairChoice(weights.parent.name, device="cpu", account=BERT))
    (weights.parents[1] / "weights.gguf").write_bytes(b"GGUF")
    with pytest.raises(PairError, match="is a file; name a model of the hub here"):
        keeper.get(PairChoice("weights.gguf", device="cpu", account=BERT))


def test_shipped_models_are_everybodys(hub):
    """The head of the embedded target was looked up on the hub."""
    hub.down = True
    for pair in (EMBEDDED, HEAD, SMOLLM2):
        choice = pair.choice()
        assert Rights(hub.address).token(choice.target, choice.draft, None) is None


@pytest.mark.parametrize("name", ["foo bar", "a/b/c", "../x", "a" * 5000, "a\0b", "", "a/b?c=d"])
def test_a_name_that_is_none_is_one_sentence(hub, name):
    with pytest.raises(InputError) as refused:
        Rights(hub.address).token(name, None, ANNA)
    assert str(refused.value).endswith(".")


def test_a_sign_in_that_has_ended_says_so_and_an_own_token_that_has_is_not_missed(hub, monkeypatch):
    rights = Rights(hub.address, holds=0.0)
    with pytest.raises(InputError, match="Your sign-in has ended; sign in again"):
        rights.token("maker/gated", None, Account("anna", "hf_ended"))
    monkeypatch.setenv("HF_TOKEN", "hf_ended_too")
    assert rights.token("maker/open", None, None) is None


def test_a_hub_that_nobody_reaches_is_one_sentence():
    with pytest.raises(InputError, match="The hub does not say who may read maker/open"):
        Rights("http://127.0.0.1:9").token("maker/open", None, None)


def test_an_adapter_could_lead_to_a_base_of_which_nobody_was_asked(hub, monkeypatch):
    monkeypatch.setattr("workbench.models.rights.find_spec", lambda name: True)
    hub.models["maker/open"]["adapter_config.json"] = b'{"base_model_name_or_path": "maker/gated"}'
    with pytest.raises(InputError, match="maker/open is an adapter, which is not loaded here"):
        Rights(hub.address).token("maker/open", None, BERT)


def test_an_account_is_no_part_of_a_choice():
    """Neither of what it equals nor of what a log would show."""
    mine, other = PairChoice("a/b", account=ANNA), PairChoice("a/b", account=BERT)
    assert mine == other == PairChoice("a/b")
    assert hash(mine) == hash(other)
    assert "hf_anna" not in repr(mine)
