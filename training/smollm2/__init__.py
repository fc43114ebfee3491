"""What the head for SmolLM2 is trained and measured on."""
