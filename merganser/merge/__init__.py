"""Versions of keys -> one row each: order, windows, merge engines."""
