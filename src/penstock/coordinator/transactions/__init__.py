"""The transaction coordinator: decides, and changes when its records are in the log."""
