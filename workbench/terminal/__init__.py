"""The command line; only here rich."""
