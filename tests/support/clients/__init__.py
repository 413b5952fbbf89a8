"""One program for each client in Python; those of other languages stand in `tools/judges`."""
