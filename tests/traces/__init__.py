"""What every road asks of the store, in order, and the metadata that it leaves: they change on purpose only."""
