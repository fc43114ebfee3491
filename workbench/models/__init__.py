"""Pairs of models: presets, loading, memory, and what a run was made on."""
