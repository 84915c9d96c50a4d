"""What goes together: definitions of tables, their options, and what this version can honour."""
