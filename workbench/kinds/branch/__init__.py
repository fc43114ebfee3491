"""Branches: a comparison that continues a text from one of its tokens."""
