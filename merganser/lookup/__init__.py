"""Lookups: the rows of given keys, straight from the files of a table.

keys given -> keys checked -> partition and bucket -> each file: where the key lies -> versions merged -> rows

keys      what callers give, as key columns
image     where the keys of a file lie, as sorted integers or hashes
copy      a data file as a lookup copy: rows without compression, found by position, and the image of its keys
held      a data file as lookups ask it, with a copy or without one
bucket    the files of one bucket: versions of keys found and merged
lookup    the handle: it follows the snapshots of the table
"""
