"""Studies: their jobs, settings, prompts, schemes and limits."""
