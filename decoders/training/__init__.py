"""Training of heads that draft for a target."""
