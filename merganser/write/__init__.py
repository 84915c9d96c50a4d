"""One write of a table: rows in, one commit."""
