"""The errors of merganser, grouped by what the caller does next.

::

    MerganserError
    ├── NotFoundError (LookupError)      ├── AlreadyExistsError          fix the name
    ├── InvalidInputError (ValueError)   options, rows, schema changes   fix the call
    ├── ConflictError                    another commit won; no change    plan again, retry (SnapshotExistsError)
    ├── CommitUnknownError               may have happened               repeat with the same identifier
    ├── ExpiredError                     needed history is gone          start elsewhere
    ├── StorageError (OSError)           the store failed                wait, retry
    ├── FormatError                      bytes break the format          restore; report path and offset
    ├── UnsupportedError                 valid, but merganser lacks it   use another engine
    └── InvariantError                   a bug of merganser; nothing was written

A message says what could not be done, the fact with its values, what is still true, and what to do.
Every error carries plain context (table, snapshot, path, column, ...) in `context` and pickles, because it
crosses from executors to the driver.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar


def a_type(value: object) -> str:
    """Return the type of a value as messages name it: "an int", "a str"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


class MerganserError(Exception):
    """The root of all errors that merganser raises on purpose.

    Attributes:
        code: a stable name of the error class, for programs: kebab-case, or as Table Store has it.
        context: the facts of the message, by name.
    """

    code: ClassVar[str] = "merganser"

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.context = context

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.context))


def _rebuild(kind: type[MerganserError], message: str, context: dict[str, Any]) -> MerganserError:
    return kind(message, **context)


class NotFoundError(MerganserError, LookupError):
    """A database, table, snapshot, tag or column does not exist, or a file pattern matches no file."""

    code = "not-found"


class AlreadyExistsError(MerganserError):
    """The name is already in use. Nothing was changed."""

    code = "already-exists"


class InvalidInputError(MerganserError, ValueError):
    """A call, row, option or combination of options is invalid. Nothing was written."""

    code = "invalid-input"


class SqlSyntaxError(InvalidInputError):
    """SQL text is no statement. Nothing was run; `context` has `line` and `column`, counted from 1."""

    code = "sql-syntax"


class Overtaken(Enum):
    """What of a change another commit has overtaken. The same change, made again from the newest state, may succeed."""

    ROWS = "the rows that it was made from"
    QUERY = "the rows that a query read which gave it its rows"
    FILES = "the files or deletion vectors that it replaces"
    BUCKETS = "the buckets that it gave to keys"
    SCHEMA = "the schema that it changes"


class ConflictError(MerganserError):
    """Another commit changed the same files or columns. Nothing of this change is visible; plan again and retry.

    Attributes:
        overtaken: what another commit has overtaken; None: something else, such as a column that the change names.
    """

    code = "conflict"

    def __init__(self, message: str, *, overtaken: Overtaken | None = None, **context: Any) -> None:
        super().__init__(message, **context)
        self.overtaken = overtaken

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, {**self.context, "overtaken": self.overtaken}))


class SnapshotExistsError(ConflictError):
    """Another writer created the snapshot with this number."""

    code = "snapshot-exists"


class CommitUnknownError(MerganserError):
    """The store dropped the reply to a commit. Repeat it with the same identifier; it is applied once."""

    code = "commit-unknown"


class ExpiredError(MerganserError):
    """The snapshot or changelog has expired."""

    code = "expired"


class TrimmedDataError(ExpiredError):
    """A position in a shard stream is damaged, foreign, too old, or of a stream that was disabled and enabled again."""

    code = "OTSTrimmedDataAccess"


class StreamNotFoundError(NotFoundError):
    """The table keeps no shard stream, perhaps no longer, or the stream has no such shard."""

    code = "OTSObjectNotExist"


class StreamParameterError(InvalidInputError):
    """An argument of a verb of the shard stream is out of its range. Nothing was changed."""

    code = "OTSParameterInvalid"


class UntrackedError(ExpiredError):
    """A commit published no changes: change tracking was off, or the rows before an overwrite have expired.

    Read the state after it, and go on from there.
    """

    code = "untracked"


class StorageError(MerganserError, OSError):
    """The store itself failed (permission, disk full, network). Waiting and retrying may help."""

    code = "storage"


class LostSnapshotWarning(UserWarning):
    """The file of the newest snapshot is lost, so reads return an older state. Nothing is written before a repair."""


class FormatError(MerganserError):
    """A file breaks the table format, or metadata names a file that does not exist."""

    code = "format"


class UnsupportedError(MerganserError):
    """The format allows this, but this version of merganser cannot do it."""

    code = "unsupported"


class InvariantError(MerganserError):
    """A bug of merganser. Nothing was written."""

    code = "invariant"


def check_flags(what: str, **flags: object) -> None:
    """Raise InvalidInputError if a flag is not a bool: `"no"` and `"false"` are true in Python.

    Args:
        what: the beginning of the message, such as "cannot write to 'db.orders'".
        flags: the values, by the names of their arguments.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidInputError(f"{what}: {name} is {value!r:.50}. Give True or False. Nothing was changed.")
