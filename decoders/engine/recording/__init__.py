"""Recorded passes: the operators of a model, noted once and replayed."""
