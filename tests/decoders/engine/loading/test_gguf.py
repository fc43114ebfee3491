"""Files that cannot be loaded are refused in one sentence, with llama.cpp or without it."""

import sys
from types import ModuleType

import pytest

from decoders import InputError, load_pair, parameters
from decoders.engine.gguf import library


@pytest.fixture
def file(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(60))
    return tmp_path / "model.gguf"


def refused(sentence, *names, **options):
    with pytest.raises(InputError, match=sentence):
        load_pair(*names, **options)


def test_without_the_package_it_says_what_to_install(file, monkeypatch):
    monkeypatch.setattr(library, "find_spec", lambda name: None)
    refused(r"needs the package llama-cpp-python; .*decoding-workbench\[gguf\]", file)


def test_a_package_that_does_not_load(file, monkeypatch):
    def broken(name):
        raise RuntimeError("Failed to load shared library 'libllama.so'")

    monkeypatch.setattr(library, "find_spec", lambda name: True)
    monkeypatch.setattr(library, "import_module", broken)
    refused("cannot load its library .*libllama.so.*; install it again", file)


def test_names(file, tmp_path):
    gone = "There is no file .*; name a GGUF file that is there"
    refused(gone, tmp_path / "other.gguf")
    refused(gone, "some/model.gguf")
    refused("cannot be looked up", "a\0.gguf")
    refused(gone, file, tmp_path / "draft.gguf")
    refused("is a folder with GGUF files; name one of them", tmp_path)
    name_both = "is a GGUF file; .* such files for the target and, if there is one, for the draft"
    refused(name_both, tmp_path, file)
    refused(name_both, None, file)
    refused(name_both, file, "mtp")
    with pytest.raises(InputError, match=name_both):
        parameters(file)
    (tmp_path / "text.gguf").write_text("no model")
    refused("is no GGUF file: it begins otherwise", tmp_path / "text.gguf")


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float16"},
        {"device": "cuda"},
        {"draft_device": "cpu"},
        {"device_map": "auto"},
        {"quantization": "int8"},
        {"passes": "plain"},
        {"safetensors": True},
        {"head": "head"},
    ],
    ids=str,
)
def test_options_that_llama_cpp_does_not_take(file, options):
    (name,) = options
    refused(f"llama.cpp runs GGUF files as they are stored; leave {name} out", file, **options)


def test_a_file_that_may_not_be_read(file, monkeypatch):
    def forbidden(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setitem(sys.modules, "llama_cpp", ModuleType("llama_cpp"))
    monkeypatch.setattr(library.Path, "open", forbidden)
    refused("cannot be read: Permission denied", file)
