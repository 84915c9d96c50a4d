"""Source: the folder that a call names, in the store where it lives, and how its files become those of a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from merganser.errors import InvalidInputError, a_type
from merganser.schema import types as t
from merganser.schema.types_text import parse_type
from merganser.storage.guarded import files_of
from merganser.storage.local import LocalStorage
from merganser.storage.open import storage_beside, storage_for
from merganser.storage.protocol import Storage

WAYS: Final = ("link", "keep", "copy")
"""How files become those of a table: under names of its own, where they lie, or their rows written anew."""


def located(source: object, storage: Storage, warehouse: str, store: Mapping[str, str]) -> tuple[Storage, str]:
    """Return the store in which a folder lives, and its path there.

    Args:
        source: a path or a URL.
        storage: that of the warehouse, which is returned where it holds the folder.
        warehouse: the path of the warehouse.
        store: options of another store.

    Raises:
        InvalidInputError: it is no path.
    """
    text = os.fspath(source) if isinstance(source, os.PathLike) else source
    if not isinstance(text, str):
        raise InvalidInputError(
            f"cannot migrate {source!r:.100}: it is {a_type(source)}. Give the path of a folder as text, such "
            "as '/data/orders' or 's3://bucket/orders'."
        )
    found, root = storage_beside(storage, text, store)
    if isinstance(files_of(found), LocalStorage):
        found, root = storage_for(text)
    if not store and _authority(root) == _authority(warehouse):
        found = storage
    return found, root.rstrip("/")


def _authority(path: str) -> str:
    scheme, sign, below = path.partition("://")
    return f"{scheme}://{below.partition('/')[0]}" if sign else ""


def checked_way(how: str | None, *, keyed: bool, beside: bool, what: str) -> str:
    """Return how the files of a folder become those of a table.

    Args:
        how: as it was asked for; None: "link" where that is possible.
        keyed: the table has a primary key.
        beside: the folder lives in the store of the warehouse.
        what: beginning of messages.

    Raises:
        InvalidInputError: there is no such way, or it is none for this table.
    """
    if how not in (None, *WAYS):
        raise InvalidInputError(
            f"{what}: how is {how!r:.100}. It is {', '.join(map(repr, WAYS))}. Nothing was changed."
        )
    if how is None:
        return "copy" if keyed or not beside else "link"
    if how != "copy" and keyed:
        raise InvalidInputError(
            f"{what} with how='{how}': rows of a table with a primary key lie in buckets, in the order of their keys, "
            "so they are written anew. Nothing was changed. Pass how='copy', or leave it out."
        )
    if how != "copy" and not beside:
        raise InvalidInputError(
            f"{what} with how='{how}': the folder lies in another store than the warehouse. Nothing was changed. Pass "
            "how='copy', or leave it out."
        )
    return how


def given_types(types: Mapping[str, Any] | None, what: str) -> dict[str, t.DataType]:
    """Return the types that a caller gives columns.

    Raises:
        InvalidInputError: a text is no type, or one of a column with parts.
    """
    if types is not None and not isinstance(types, Mapping):
        raise InvalidInputError(
            f"{what}: types is {a_type(types)}. Give a dict such as {{'dt': 'DATE'}}. Nothing was changed."
        )
    found: dict[str, t.DataType] = {}
    for name, kind in (types or {}).items():
        try:
            found[name] = kind if isinstance(kind, t.DataType) else parse_type(kind, definition=True)
        except (InvalidInputError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"{what}: the type of column '{name}' is {kind!r:.100}, and no type such as 'BIGINT' ({error}). "
                "Nothing was changed.",
                column=name,
            ) from error
        if t.is_nested(found[name]):
            raise InvalidInputError(
                f"{what}: types gives column '{name}' the type {found[name]}. It gives types to columns without parts. "
                "Nothing was changed. Leave it out, and alter the table afterwards.",
                column=name,
            )
    return found
