"""What a controller decides: topics, placement, leaders. Pure: decisions are store operations; applying them is others' work."""
