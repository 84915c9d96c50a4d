"""Queries: names and types are bound as Spark binds them, and DuckDB computes over our scans.

`bind` turns a tree of sqlglot into a `BoundQuery`: the columns and filters that each reference to a table needs, and a
text for DuckDB in which every value has Spark's type and every function Spark's meaning. What cannot be said so is
refused by name. `run` runs it.
"""

from merganser.sql.query.binder import bind
from merganser.sql.query.bound import BoundQuery, Reference, Source, Stored
from merganser.sql.query.duck import Batches, Held, Limits, Running, run

__all__ = ["Batches", "BoundQuery", "Held", "Limits", "Reference", "Running", "Source", "Stored", "bind", "run"]
