"""Other engines on this machine, for comparison: what installs, feeds, starts and records them."""
