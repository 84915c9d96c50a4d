"""Data tokens: keys of the store that a REST server gives for one table, and gives again before they expire.

A process asks once for each table, and again when half of the time has passed, at most an hour before the end. A store
renews its keys in the middle of a read or a write. Storages and jobs hold no keys, but the way to ask for them: a task
that starts late has keys of its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from merganser.catalogs.rest_client import RestClient
from merganser.errors import StorageError
from merganser.options.registry import find_catalog_option
from merganser.storage.object_connection import can_lease, without_keys
from merganser.storage.object_store import ObjectStorage
from merganser.storage.open import storage_for
from merganser.storage.protocol import Storage
from merganser.storage.retries import MACHINE
from merganser.values import dataclass

_BEFORE_MS: Final = 3_600_000
"""Maximum time before their end at which keys are asked for again, in milliseconds. Paimon's clients use it always."""
_AGAIN_MS: Final = 5_000
"""Wait after a server gave no new keys while the old ones are still good, in milliseconds."""
_TABLES_MAX: Final = 10_000
"""Maximum number of tables whose keys a process keeps."""


@dataclass(frozen=True, slots=True)
class Token:
    """Keys, as options of a store.

    Attributes:
        expires_ms: epoch milliseconds.
        renewed_ms: when to ask again.
    """

    options: Mapping[str, str] = field(repr=False)
    expires_ms: int
    renewed_ms: int


@dataclass(frozen=True, slots=True)
class TableTokens:
    """The keys of one table; see `Lease`."""

    client: RestClient
    database: str
    table: str

    def current(self) -> tuple[Mapping[str, str], int | None]:
        """Return the options of the newest token, and when to ask again.

        Raises:
            StorageError: the server gives none, or one that has expired.
            NotFoundError: the table was dropped or renamed.
        """
        with _HELD.lock:
            lock = _HELD.locks.setdefault(self, threading.Lock())
        with lock:
            found = _HELD.tokens.get(self)
            now_ms = _now_ms()
            if found is None or now_ms >= found.renewed_ms:
                found = self._renewed(found, now_ms)
                with _HELD.lock:
                    _HELD.tokens[self] = found
                    while len(_HELD.tokens) > _TABLES_MAX:
                        _HELD.locks.pop(_HELD.tokens.popitem(last=False)[0], None)
        return found.options, found.renewed_ms

    def _renewed(self, old: Token | None, now_ms: int) -> Token:
        try:
            return self._asked(now_ms)
        except StorageError:
            if old is None or old.expires_ms <= now_ms + _AGAIN_MS:
                raise
            return Token(old.options, old.expires_ms, now_ms + _AGAIN_MS)

    def _asked(self, now_ms: int) -> Token:
        reply = self.client.get("databases", self.database, "tables", self.table, "token")
        given, until = reply.get("token"), reply.get("expiresAtMillis")
        if not isinstance(given, dict) or not isinstance(until, int):
            raise StorageError(
                f"the catalog at '{self.client.uri}' gave keys for '{self.database}.{self.table}' in a form that is "
                "none: an object 'token' and a number 'expiresAtMillis' are expected.",
                changed=False,
            )
        if until <= now_ms:
            raise StorageError(
                f"the catalog at '{self.client.uri}' gave keys for '{self.database}.{self.table}' that expired "
                f"{now_ms - until} ms ago. Compare the clocks of this machine and of the server.",
                changed=False,
            )
        options = {key: str(text) for key, text in given.items()}
        return Token(options, until, until - min(_BEFORE_MS, (until - now_ms) // 2))


class _Held:
    """The tokens of this process, by table; the oldest go first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.locks: dict[TableTokens, threading.Lock] = {}
        self.tokens: OrderedDict[TableTokens, Token] = OrderedDict()


_HELD: Final = _Held()


def storage_with_tokens(root: str, options: Mapping[str, str], tokens: TableTokens) -> Storage:
    """Return the storage of a table whose keys a server gives.

    What a token says beside keys, such as an endpoint, holds from the first one on. If it has no keys that an object
    store can renew, its options hold as they are.
    """
    given, _ = tokens.current()
    both = {**options, **_own(given)}
    plain, _ = storage_for(root, both)
    if not isinstance(plain, ObjectStorage) or not can_lease(plain.root, given):
        return plain
    return ObjectStorage(plain.root, without_keys(plain.root, both), tokens)


def _own(options: Mapping[str, str]) -> dict[str, str]:
    """Return options by our names, so that those of a token come before the same ones of the catalog."""
    return {(found.key if (found := find_catalog_option(key)) else key): text for key, text in options.items()}


def _now_ms() -> int:
    return int(MACHINE.now().timestamp() * 1000)
