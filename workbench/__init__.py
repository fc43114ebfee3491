"""Runs decoders side by side, keeps the results, and shows them on a page or in a terminal."""
