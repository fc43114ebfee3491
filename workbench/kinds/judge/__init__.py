"""One draft judged by many rules: that of a round, or one that a reader types."""
