"""Whole clusters in one process, by seed: the broker's own code over a simulated clock, loop, network and disk."""
