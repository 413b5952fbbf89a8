"""A small synchronous wire client: metadata, offsets, fetch, produce. It speaks to Penstock and to Apache Kafka."""
