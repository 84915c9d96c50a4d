"""Tests against the other clients of the format that are published on PyPI."""
