"""The handle: tables and the doors to them."""
