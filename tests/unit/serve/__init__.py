"""The server of shard streams."""
