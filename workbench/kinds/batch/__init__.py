"""Batch studies: a set of prompts at several batch sizes and in several schemes."""
