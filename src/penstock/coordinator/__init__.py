"""Coordinators: they decide records and replies, and carry nothing out themselves."""
