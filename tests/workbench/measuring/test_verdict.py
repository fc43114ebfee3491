"""Whether a server's model is the target, by its name."""

from types import SimpleNamespace

import pytest

from workbench.measuring.verdict import same_model


def pair(name: str):
    return SimpleNamespace(target=SimpleNamespace(config=SimpleNamespace(name_or_path=name)))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("qwen3-8b", "Qwen/Qwen3-8B"),
        ("/models/Qwen3-8B-F16.gguf", "/models/Qwen3-8B"),
        ("Qwen3-8B.gguf", "Qwen/Qwen3-8B"),
        ("stories", "/home/me/assets/stories/target"),
        ("assets/stories/target", "/home/me/assets/stories/target"),
        ("./assets/stories/target/", "/home/me/assets/stories/target"),
    ],
)
def test_names_of_the_target(theirs, ours):
    assert same_model(theirs, pair(ours))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Qwen/Qwen3-8B-Base", "Qwen/Qwen3-8B"),
        ("Other/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("Qwen3-8B-Q4_K_M.gguf", "Qwen/Qwen3-8B"),
        ("assets/stories/draft", "/home/me/assets/stories/target"),
        ("", "Qwen/Qwen3-8B"),
        ("stories", ""),
    ],
)
def test_names_of_others(theirs, ours):
    assert not same_model(theirs, pair(ours))
