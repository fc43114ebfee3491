"""Acceptance by draft length: profiles of methods, their files, and what they gain on a server."""
