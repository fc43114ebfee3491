"""Pairs of models: presets, loading, memory, and the environment of a run."""
