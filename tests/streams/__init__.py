"""Chains of streams through Spark that are killed and go on: run with `python -m tests.streams`."""
