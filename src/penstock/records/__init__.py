"""Record batch v2: bytes to values to Arrow columns. No files, no sockets."""
