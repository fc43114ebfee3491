"""Loading pairs of models, and refusing what cannot be run."""
