"""Servers of other engines: where they are, what they tell, and whether they keep the law."""
