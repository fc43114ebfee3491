"""Numba's kernels for passes on a CPU, and the program that strings them together.

Only `loading` and `codes` may be imported without numba.
"""
