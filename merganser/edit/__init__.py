"""Edits: rows that are written depend on rows that are there.

given rows -> keys -> rows of the keys before -> rows after -> one commit, unless other commits changed the rows

given      the rows of one call, as groups of rows of a key
partial    some columns of a row and the row before -> the row after
images     the rows before and after -> what became of each key
upsert     the steps in their order, done again if another commit changed the rows meanwhile
"""
