"""Packed attention over unpadded caches."""
