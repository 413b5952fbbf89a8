"""The composition root: configuration to objects; start, run, stop."""
