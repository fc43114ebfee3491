"""Experiments: plans of many prompts, decoders and settings, saved as they run, then reported."""
