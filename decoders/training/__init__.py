"""Training of heads and models that draft for a target."""
