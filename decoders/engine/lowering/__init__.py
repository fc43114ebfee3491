"""Programs: the operators of a model's pass, noted once, become instructions of the kernels."""
