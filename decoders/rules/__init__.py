"""The rules by which the target's distributions judge a draft."""
