"""Attacks the page; see __main__.py."""
