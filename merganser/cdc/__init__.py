"""Change records -> rows with kinds."""
