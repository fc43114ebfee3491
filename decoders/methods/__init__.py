"""The decoders themselves: each reads like the pseudo-code of its paper."""
