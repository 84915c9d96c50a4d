"""A small file that one of racing writers makes, and what became of it where the store's reply was lost.

A store that creates a file only if it is absent makes one winner; its reply may be lost on the way back, and then the
winner does not know it. So after every reply but a plain yes, or a no that is as plain, the file is read back. "Taken"
is looked into as well: layers below may have sent our own create twice. Who made it is told by its bytes, so writers
put something into them that is theirs alone.

Nothing but the file is touched, and what is there is never replaced.

Format: section "atomic publication".
"""

from __future__ import annotations

from collections.abc import Callable

from merganser.errors import AlreadyExistsError, FormatError, MerganserError, NotFoundError, StorageError
from merganser.storage.env import Env
from merganser.storage.retries import STORE
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Created:
    """The outcome of a create. Without either value, another writer created the file, and nothing was changed.

    Attributes:
        stored: the bytes of the file, which is ours.
        unknown: the last error of the store, if it is unknown whether the file exists or which writer created it.
    """

    stored: bytes | None = None
    unknown: MerganserError | None = None


def create_once(env: Env, path: str, data: bytes, *, is_ours: Callable[[bytes, bool], bool]) -> Created:
    """Create a file unless there is one; tries a few times where the store fails.

    Args:
        is_ours: whether a file that was found at the path is ours, given its bytes, and whether a reply to one of our
            creates was lost, so that it may have made the file. A FormatError says that this cannot be told.

    Raises:
        StorageError: the store failed every time, and said each time that it had changed nothing.
        UnsupportedError: the store cannot promise one winner; nothing was made.
    """
    unknown: MerganserError | None = None
    sent = False

    def create() -> Created:
        nonlocal unknown, sent
        try:
            env.storage.create(path, data)
            return Created(stored=data)
        except AlreadyExistsError as error:
            unknown = error
        except StorageError as error:
            if error.context.get("changed") is False:
                raise
            unknown, sent = error, True
        found = env.storage.read(path)
        return Created(stored=found) if is_ours(found, sent) else Created()

    try:
        return STORE.run(create, (NotFoundError, StorageError, FormatError), timing=env)
    except (NotFoundError, StorageError, FormatError):  # not there, or unknown
        if unknown is None:
            raise
        return Created(unknown=unknown)
