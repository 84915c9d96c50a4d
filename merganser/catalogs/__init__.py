"""Catalogs: databases and tables by name."""
