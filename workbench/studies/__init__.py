"""What is asked: comparisons, batches, their settings, prompts, links and limits."""
