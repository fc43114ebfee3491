"""How each engine is asked, and what its answers count: a file for each, listed in `table`."""
