"""Change data of orders through several table stores, which others can repeat: `python -m benchmarks.campaign`."""
