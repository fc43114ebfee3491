"""Advice: whether speculative decoding pays for a pair on this machine."""
