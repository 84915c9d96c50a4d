"""Catalogs: where tables have names."""
