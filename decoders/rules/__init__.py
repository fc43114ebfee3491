"""How the target's distributions judge a draft."""
