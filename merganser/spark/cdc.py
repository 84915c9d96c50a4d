"""Change records on Spark: rows of them, and the tables that they belong to."""

from merganser.spark.change_records import REJECTED, parse
from merganser.spark.feed import FeedWritten, write, write_stream

__all__ = ["REJECTED", "FeedWritten", "parse", "write", "write_stream"]
