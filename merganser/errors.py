"""The errors of merganser, grouped by what the caller does next.

::

    MerganserError
    ├── NotFoundError (LookupError)      ├── AlreadyExistsError          fix the name
    ├── InvalidInputError (ValueError)   options, rows, schema changes   fix the call
    ├── ConflictError                    lost a race; nothing changed    plan again, retry (SnapshotExistsError)
    ├── CommitUnknownError               may have happened               repeat with the same identifier
    ├── ExpiredError                     needed history is gone          start elsewhere
    ├── StorageError (OSError)           the store failed                wait, retry
    ├── FormatError                      bytes break the format          restore; report path and offset
    ├── UnsupportedError                 valid, but not ours to do       use another engine
    └── InvariantError                   our bug; raised before anything is written

A message says what could not be done, the fact with its values, what is still true, and what to do.
Every error carries plain context (table, snapshot, path, column, ...) in `context` and pickles, because it
crosses from executors to the driver.
"""

from __future__ import annotations

from typing import Any, ClassVar


class MerganserError(Exception):
    """Root of all errors that merganser raises on purpose.

    Attributes:
        code: stable kebab-case name of the class of error, for programs.
        context: the plain facts named in the message, by name.
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
    """A database, table, snapshot, tag, column or file pattern that does not exist."""

    code = "not-found"


class AlreadyExistsError(MerganserError):
    """The name is taken. Nothing was changed."""

    code = "already-exists"


class InvalidInputError(MerganserError, ValueError):
    """A bad call, row, option or combination of options. Raised before anything is written."""

    code = "invalid-input"


class ConflictError(MerganserError):
    """A concurrent change won. Nothing of this change is visible; plan again and retry."""

    code = "conflict"


class SnapshotExistsError(ConflictError):
    """Another writer owns this snapshot id."""

    code = "snapshot-exists"


class CommitUnknownError(MerganserError):
    """The store dropped the reply of a commit. Repeat it with the same identifier: it is applied once."""

    code = "commit-unknown"


class ExpiredError(MerganserError):
    """The history that was asked for has been removed by expiry."""

    code = "expired"


class StorageError(MerganserError, OSError):
    """The store itself failed (permission, disk full, network). Waiting and retrying may help."""

    code = "storage"


class FormatError(MerganserError):
    """Bytes that break the table format, or a file that metadata names and the store lacks."""

    code = "format"


class UnsupportedError(MerganserError):
    """Valid in the format, but not something this version of merganser can do."""

    code = "unsupported"


class InvariantError(MerganserError):
    """A bug of merganser, found before anything was written."""

    code = "invariant"
