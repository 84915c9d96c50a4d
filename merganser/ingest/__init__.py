"""Rows as callers hold them -> Arrow tables."""
