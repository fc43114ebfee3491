"""The papers' formulas, compared with the measurements of a run."""
