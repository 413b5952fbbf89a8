"""The wire: headers, kio's schemas loaded version by version, and hand-written codecs for Produce and Fetch."""
