"""Benchmarks of merganser against its peers and against the floor: `python -m benchmarks.<name>`, see README.md."""
