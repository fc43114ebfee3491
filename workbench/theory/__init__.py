"""The papers' formulas beside what a run measured."""
