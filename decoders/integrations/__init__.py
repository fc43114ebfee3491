"""The decoders inside of other libraries."""
