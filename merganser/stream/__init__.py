"""Streams: readers that follow the snapshots of a table."""
