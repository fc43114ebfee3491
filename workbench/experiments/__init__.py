"""Experiments: plans of many prompts, decoders and settings, committed as they go, scored and reported."""
