"""Runs as pictures, tables and files; no interface."""
