"""One partition's log on disk: segments, indexes, producer state, epochs, recovery, retention, compaction."""
