"""Folder: the data files of a directory, and their format. `ingest.folders` says which files count."""

from __future__ import annotations

from merganser.codec.data_format import FORMATS
from merganser.errors import InvalidInputError, NotFoundError
from merganser.ingest.folders import Texts, entries_below, known_format, partition_columns
from merganser.storage.env import Env
from merganser.storage.protocol import Storage
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class FolderFile:
    """One data file of a folder.

    Attributes:
        path: where it lies.
        format: `parquet`, `orc` or `avro`.
        size: bytes.
        modified_ms: epoch milliseconds of its last change; 0: the store keeps none.
        partition: the partition columns of its directories, outermost first, each with its text; None: null.
    """

    path: str
    format: str
    size: int
    modified_ms: int
    partition: Texts


@dataclass(frozen=True, slots=True)
class Folder:
    """The data files of a directory, ordered by path.

    Attributes:
        storage: where they live.
        root: the directory.
        partition_by: the partition columns, outermost first.
    """

    storage: Storage
    root: str
    files: tuple[FolderFile, ...]
    partition_by: tuple[str, ...]


def folder_of(storage: Storage, env: Env, root: str, *, form: str | None, null: str, what: str) -> Folder:
    """Return the data files of a directory and of those below it.

    Args:
        storage: where the directory lives.
        env: whose threads ask the store.
        form: the format of all files, whatever their names; None: their names say it.
        null: a second name of partition directories that stands for null.
        what: beginning of messages, such as "cannot migrate '/data/orders'".

    Raises:
        NotFoundError: there is no data file.
        InvalidInputError: files lie in directories of other partition columns than others, or are of no known format.
        UnsupportedError: the folder is a table of another format.
    """
    if form is not None and form not in FORMATS:
        raise InvalidInputError(
            f"{what}: format is {form!r:.100}. It is {', '.join(map(repr, FORMATS))}. Nothing was changed. Rows of "
            "other files are written with table.load(...)."
        )
    below = entries_below(storage, root, fetch=env.fetch, null=null, what=what, through=True)
    entries = [one for one in below if one.size]
    if not entries:
        raise NotFoundError(
            f"{what}: there are no data files in it; hidden files and files of zero bytes are none. Check the path.",
            path=root,
        )
    files = tuple(
        FolderFile(one.path, form or _format_of(one.path, what), one.size, one.modified_ms, one.partition)
        for one in entries
    )
    return Folder(storage, root, files, partition_columns(entries, what))


def _format_of(path: str, what: str) -> str:
    found = known_format(path)
    if found in FORMATS:
        return found
    raise InvalidInputError(
        f"{what}: '{path}' is no data file: its name ends in none of .{', .'.join(FORMATS)}. Nothing was changed. "
        "If all files are of one format, name it, as in format='orc'. Otherwise move the file elsewhere, or give it a "
        "name that begins with '_' or '.', and it is passed over. Rows of CSV and JSON files are written with "
        "table.load(...).",
        path=path,
    )
