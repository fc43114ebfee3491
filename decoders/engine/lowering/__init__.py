"""Recorded passes rewritten for the compiled kernels: patterns of operators become instructions."""
