"""The decoders: each reads like the pseudo-code of its paper."""
