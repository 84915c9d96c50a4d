"""Filters and projections: built, read from text and Arrow, evaluated over columns, asked of statistics."""
