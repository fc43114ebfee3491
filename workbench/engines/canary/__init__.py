"""Whether a served model keeps its law: draws against it, and greedy against greedy."""
