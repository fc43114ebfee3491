"""Draws: one prompt continued with many seeds by each decoder."""
