"""A model's weights as passes multiply them: shared, copied, quantised."""
