"""Bytes <-> values: rows, hashes, statistics, Avro, data files. Given bytes or an open file, never a path."""
