"""The command line; no other room imports rich."""
