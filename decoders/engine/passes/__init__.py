"""Passes of the requests of one run."""
