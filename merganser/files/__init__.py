"""Data files of a table: which columns, how written, how read in today's schema."""
