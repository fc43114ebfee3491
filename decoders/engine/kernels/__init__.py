"""Passes on a CPU in one compiled call: numba's kernels, and the program that strings them together.

Only `loading` may be imported without numba.
"""
