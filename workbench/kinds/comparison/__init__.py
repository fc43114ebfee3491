"""Comparisons: one prompt, several decoders side by side."""
