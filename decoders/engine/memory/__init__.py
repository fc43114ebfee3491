"""Cache rows: where they lie, and what is fed."""
