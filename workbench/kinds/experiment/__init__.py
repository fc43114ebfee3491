"""Experiments: their tab and their command; `workbench.experiments` runs them."""
