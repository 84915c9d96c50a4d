"""Bytes at a path, and everything else that is not deterministic."""
