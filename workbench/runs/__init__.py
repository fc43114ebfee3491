"""What came of a study, as plain data, and where it is kept."""
