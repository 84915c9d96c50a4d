"""Files of other writers: a folder of files by each, and whether tables have the rows that their own readers give.

`python -m tests.files_of_others` makes an environment for each writer, lets it write, and compares; it also writes the
table in `docs/files.md`. The suite reads the recorded files (`recorded/`), for which nothing has to be installed.
"""
