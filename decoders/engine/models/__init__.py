"""Models that passes run on."""
