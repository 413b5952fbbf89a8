"""Waiting without knowing for what: a hierarchical timing wheel, and operations watched by key."""
