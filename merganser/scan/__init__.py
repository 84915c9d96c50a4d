"""Reading: time travel, plans, splits, rows."""
