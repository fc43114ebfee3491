"""Two greedy texts that differ: a fault or a near-tie."""
