"""What keeps a table in shape after its rows are written: compaction, and what follows a commit."""
