"""The tabs: each file lays one out, wires it and returns it."""
