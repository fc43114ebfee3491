"""What a comparison ran on."""

from decoders import load_pair
from workbench.models.environment import environment


def test_shipped_models_are_named_from_the_root_of_the_project():
    """Once with the whole path, which told in every export how the folders of the server are called."""
    facts = environment(load_pair())
    assert facts["target"]["name"] == "assets/stories/target"
    assert facts["draft"]["name"] == "assets/stories/draft"


def test_copies_of_weights_are_counted():
    """At most one extra copy of the weights."""
    facts = environment(load_pair())
    assert facts["passes"] == "recorded"
    for role in ("target", "draft"):
        assert 0 < facts[role]["copied_bytes"] <= facts[role]["bytes"]
