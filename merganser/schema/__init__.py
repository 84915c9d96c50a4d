"""What a row is: types, columns, schemas; rows taken in, and rows of older schemas. No bytes, no I/O.

Which rules a value follows when its type changes, here and in filters, is told in `docs/casts.md`.
"""
