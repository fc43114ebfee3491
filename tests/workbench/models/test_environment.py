"""What a comparison ran on."""

from decoders import load_pair
from workbench.models.environment import environment


def test_shipped_models_are_named_from_the_root_of_the_project():
    """Once with the whole path, which told in every export how the folders of the server are called."""
    facts = environment(load_pair())
    assert facts["target"]["name"] == "Llama-Stories target"
    assert facts["draft"]["name"] == "Llama-Stories draft"
