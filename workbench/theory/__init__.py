"""The papers' formulas compared with what a run measured."""
