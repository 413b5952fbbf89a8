"""Penstock: a Kafka-compatible log broker, and the log's own files."""

__version__ = "0.1.0"
