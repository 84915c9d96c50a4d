"""The metastore of a catalog, from a text and options.

::

    warehouse, s3://bucket/warehouse           FileSystem
    jdbc:sqlite:/data/shop.sqlite              SqlMetastore; the option `warehouse` says where tables lie
    jdbc:postgresql://host:5432/catalog
    jdbc:mysql://host:3306/catalog             also jdbc:mariadb:
    http://host:10000, https://...             RestMetastore; the option `warehouse` says which one of the server
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from merganser.catalogs.filesystem import FileSystem
from merganser.catalogs.metastore import Metastore
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.options import catalog as c
from merganser.options.option import Options
from merganser.options.registry import did_you_mean
from merganser.storage.env import Env
from merganser.storage.guarded import GuardedStorage
from merganser.storage.local import LocalStorage
from merganser.storage.object_store import ObjectStorage
from merganser.storage.open import storage_for
from merganser.storage.protocol import Storage

if TYPE_CHECKING:
    import sqlalchemy as sa

_JDBC: Final = "jdbc:"
_DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_DRIVERS_OF: Final = {**_DRIVERS, "mariadb": _DRIVERS["mysql"]}


def metastore_of(text: str, given: Mapping[str, Any], kind: str | None, env: Callable[[Storage], Env]) -> Metastore:
    """Return the metastore of a catalog.

    Args:
        text: a warehouse, or the URI of a metastore.
        given: options of the catalog.
        kind: "filesystem", "jdbc" or "rest"; None: what the option `metastore` says, else what the text looks like.
        env: makes the effects of a storage.

    Raises:
        InvalidInputError: the text, an option or the kind is none.
        UnsupportedError: a package is missing; the message says which.
        StorageError: the metastore does not answer.
    """
    options = Options({key: str(value) for key, value in given.items()})
    kind = kind or options.get(c.METASTORE) or _kind_of(text)
    what = f"cannot open the catalog '{without_password(text)}'"
    if kind not in _KINDS:
        raise InvalidInputError(
            f"{what}: metastore is {kind!r:.50}. {did_you_mean(str(kind), list(_KINDS))}", option=c.METASTORE.key
        )
    return _KINDS[kind](text, options, env, what)


def _of_files(text: str, given: Options, env: Callable[[Storage], Env], what: str) -> Metastore:
    for option, value, why in (
        (c.WAREHOUSE, text, "the warehouse is the argument"),
        (
            c.URI,
            None,
            f"the metastore is the file system. Set '{c.METASTORE.key}' to 'jdbc' or 'rest', or leave the option out",
        ),
    ):
        if (found := given.get(option)) not in (None, value):
            raise InvalidInputError(
                f"{what} with '{option.key}' = '{without_password(str(found))}': {why}. Nothing was opened.",
                option=option.key,
            )
    storage, root = storage_for(text, given)
    return FileSystem(root, env(storage))


def _of_sql(text: str, given: Options, env: Callable[[Storage], Env], what: str) -> Metastore:
    asked = given.get(c.URI)
    uri, warehouse = (text, given.get(c.WAREHOUSE)) if asked is None else (asked, text)
    if warehouse is None:
        if not text.startswith(_JDBC):
            raise _one_is_missing(what, "the address of the database", "the directory where tables lie")
        raise InvalidInputError(
            f"{what}: the option '{c.WAREHOUSE.key}' is missing, the directory where tables lie. Nothing was opened. "
            "Pass options={'warehouse': '/data/warehouse'}.",
            option=c.WAREHOUSE.key,
        )
    try:
        from merganser.catalogs.sql_database import SqlDatabase  # noqa: PLC0415 - an extra
        from merganser.catalogs.sql_metastore import SqlGuard, SqlMetastore  # noqa: PLC0415 - an extra
    except ImportError:
        raise UnsupportedError(
            f"{what}: the package sqlalchemy is missing. Nothing was opened. Run pip install 'merganser[sql-catalog]'."
        ) from None
    url = _url(uri, given, what)
    wait = given.get(c.LOCK_TIMEOUT)
    database = SqlDatabase(url, given.get(c.CATALOG_KEY), wait.total_seconds())
    storage, root = storage_for(warehouse, given)
    locks = given.get(c.LOCK_ENABLED)
    locks = isinstance(storage, ObjectStorage) if locks is None else locks
    database.prepare()
    guarded = GuardedStorage(storage, SqlGuard(root, database, locks))
    return SqlMetastore(FileSystem(root, env(guarded)), database)


def _url(uri: str, given: Options, what: str) -> sa.URL:
    """Return where the database is: `jdbc:` as Java has it, or as SQLAlchemy has it."""
    import sqlalchemy as sa  # noqa: PLC0415 - an extra

    try:
        if uri == "jdbc:sqlite:":
            raise ValueError("it names no file")  # SQLite would keep all in memory, per connection
        if uri.startswith("jdbc:sqlite:"):
            url = sa.URL.create("sqlite", database=uri.removeprefix("jdbc:sqlite:"))
        elif uri.startswith(_JDBC):
            parts = urlsplit(uri.removeprefix(_JDBC))
            query = dict(parse_qsl(parts.query))
            url = sa.URL.create(
                _DRIVERS_OF[parts.scheme],
                username=unquote(parts.username or "") or query.pop("user", None),
                password=unquote(parts.password or "") or query.pop("password", None),
                host=parts.hostname,
                port=parts.port,
                database=parts.path.lstrip("/"),
                query=query,
            )
        else:
            url = sa.make_url(uri)
    except (KeyError, ValueError, sa.exc.ArgumentError):
        raise InvalidInputError(
            f"{what}: '{without_password(uri)}' is no database that it knows. Write jdbc:sqlite:/path, "
            "jdbc:postgresql://host:5432/database or jdbc:mysql://host:3306/database."
        ) from None
    more = {key.removeprefix(_PREFIX): str(value) for key, value in given.items() if key.startswith(_PREFIX)}
    user, password = more.pop("user", None), more.pop("password", None)
    if user is not None:
        url = url.set(username=user)
    if password is not None:
        url = url.set(password=password)
    return url.update_query_dict(more)


def _of_rest(text: str, given: Options, env: Callable[[Storage], Env], what: str) -> Metastore:
    asked = given.get(c.URI)
    uri, warehouse = (text, given.get(c.WAREHOUSE)) if asked is None else (asked, text)
    if warehouse is None:
        if not text.startswith(_HTTP):
            raise _one_is_missing(what, "the address of the server", "what the server calls the warehouse")
        raise InvalidInputError(
            f"{what}: the option '{c.WAREHOUSE.key}' is missing, what the server calls the warehouse. Nothing was "
            "opened. Pass options={'warehouse': 'sales'}.",
            option=c.WAREHOUSE.key,
        )
    address = uri.rstrip("/") if uri.startswith(_HTTP) else f"http://{uri.rstrip('/')}"
    if without_password(address) != address or "#" in address:
        raise InvalidInputError(
            f"{what}: '@', '?' and '#' have no place in its address. Nothing was opened. Give what the server asks for "
            f"as options: '{c.TOKEN.key}', or headers behind '{_HEADER}'.",
            option=c.URI.key,
        )
    provider, token = given.get(c.TOKEN_PROVIDER), given.get(c.TOKEN)
    if token and not (token.isascii() and token.isprintable()):
        raise InvalidInputError(
            f"{what}: the option '{c.TOKEN.key}' has a character that no token has, such as a line break. Nothing was "
            "opened.",
            option=c.TOKEN.key,
        )
    for option, missing in ((c.TOKEN, provider == "bear" and not token), (c.TOKEN_PROVIDER, token and not provider)):
        if missing:
            raise InvalidInputError(
                f"{what}: the option '{option.key}' is missing. Nothing was opened. 'token.provider' = 'bear' sends "
                "the token of the option 'token'.",
                option=option.key,
            )
    try:
        from merganser.catalogs.rest_client import BEARER, RestClient, sign_of  # noqa: PLC0415 - an extra
        from merganser.catalogs.rest_metastore import RestGuard, RestMetastore, guarded  # noqa: PLC0415 - an extra
        from merganser.catalogs.rest_schema import ROLE  # noqa: PLC0415 - an extra
        from merganser.catalogs.rest_signing import DLF, signer_of  # noqa: PLC0415 - an extra
    except ImportError:
        raise UnsupportedError(
            f"{what}: the package requests is missing. Nothing was opened. Run pip install 'merganser[rest-catalog]'."
        ) from None
    if provider not in (None, BEARER, DLF):
        sign_of(provider)
    signer = signer_of(given, address, what) if provider == DLF else None
    client = RestClient(address, provider, token, _headers(given), signer=signer, ca_file=_ca_file(given, what))
    config = client.ask("GET", "/v1/config", {"warehouse": warehouse})
    server = {key: str(value) for key, value in (config.get("overrides") or {}).items()}
    defaults = {key: str(value) for key, value in (config.get("defaults") or {}).items()}
    merged = Options({**defaults, **dict(given), **server})
    client = replace(client, prefix=merged.get(c.PREFIX) or "", headers=_headers(merged))
    first = client.get("databases", maxResults="1").get("databases") or []
    location = client.get("databases", first[0]).get("location") if first else None
    storage, place = storage_for(location.rpartition("/")[0] or location if location else ".", merged)
    guard = RestGuard(client)
    made = env(guarded(storage, guard, server.get(ROLE)))
    tokens = merged.get(c.DATA_TOKEN)
    return RestMetastore(client, guard, place if location else address, made, merged, tokens)


def _one_is_missing(what: str, address: str, warehouse: str) -> InvalidInputError:
    return InvalidInputError(
        f"{what}: it takes two things, and one is missing: {address}, and {warehouse}. Nothing was opened. Pass the "
        f"other one as the option '{c.URI.key}' or '{c.WAREHOUSE.key}'.",
        option=c.URI.key,
    )


def _ca_file(options: Options, what: str) -> str | None:
    """Return the file of the certificates that a server has to prove itself by."""
    asked = options.get(c.TLS_CA)
    if asked is None:
        return None
    path = os.path.abspath(os.path.expanduser(asked))
    if not LocalStorage().exists(path):
        raise InvalidInputError(
            f"{what}: the option '{c.TLS_CA.key}' is '{asked}', and there is no such file. Nothing was opened.",
            option=c.TLS_CA.key,
        )
    return path


def _headers(options: Options) -> tuple[tuple[str, str], ...]:
    """Return headers that options name, such as `header.x-user`."""
    return tuple(
        (key.removeprefix(_HEADER), str(value)) for key, value in sorted(options.items()) if key.startswith(_HEADER)
    )


def _kind_of(text: str) -> str:
    return "jdbc" if text.startswith(_JDBC) else "rest" if text.startswith(_HTTP) else "filesystem"


_HTTP: Final = ("http://", "https://")
_HEADER: Final = "header."
_PREFIX: Final = "jdbc."
_KINDS: Final[dict[str, Callable[..., Metastore]]] = {"filesystem": _of_files, "jdbc": _of_sql, "rest": _of_rest}


def without_password(text: str) -> str:
    """Return an address as people may see it."""
    before, question, _ = text.partition("?")
    scheme, slashes, rest = before.partition("//")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}" + ("?..." if question else "")
