"""The decoders inside other libraries."""
