"""Running models on token trees: packed forward passes over unpadded caches."""
