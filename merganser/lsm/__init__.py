"""One bucket: key ranges, levels, writers."""
