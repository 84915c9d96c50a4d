"""How object stores are reached: options and environment in, clients out.

The options `s3.*`, `oss.*`, `gs.*` and `az.*` are defined in `options.catalog`. What is not given comes from the
environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`, or the role of the machine).

`allow-http` is true when the endpoint begins with `http:` and the option does not say otherwise. Paths are in the
path style unless `path-style-access` is false; with `oss:`, it is false unless given. `conditional-create` is `check`
or `trust`, see `object_store`.

A process keeps clients, one pair for each root and set of options; the least recently used go first, as credentials
that change leave theirs behind. They own threads, and a process that was forked does not have them: it is told so,
since its first request would wait for ever.
"""

from __future__ import annotations

import ipaddress
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import SplitResult, urlsplit

from obstore.exceptions import BaseError as StoreError
from obstore.exceptions import UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, S3Store

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.options.catalog import OPTIONS
from merganser.options.registry import find_catalog_option
from merganser.values import dataclass

Client: TypeAlias = S3Store | GCSStore | AzureStore

_CONNECTIONS_MAX: Final = 32
"""Maximum number of pairs of clients that a process keeps."""
_RETRIES: Final = 6
_RETRY_SECONDS_MAX: Final = 60
_REQUEST_SECONDS_MAX: Final = 120
_REQUEST_ONCE_SECONDS_MAX: Final = 30


class Lease(Protocol):
    """Keys that expire, and that somebody renews. Pickles, and is hashable."""

    def current(self) -> tuple[Mapping[str, str], int | None]:
        """Return options that hold the keys, and epoch milliseconds from which on to ask again; None: never.

        Raises:
            StorageError: there are none.
        """


@dataclass(frozen=True, slots=True)
class _Scheme:
    """The configuration of one kind of store.

    Attributes:
        client: its client.
        settings: option without scheme -> setting of the client.
        secrets: the options that no message may hold.
        endpoint_variables: the environment's names of the endpoint, the first that is set counts.
        known_hosts: ends of the host names that are known to keep preconditions.
        create_headers: what else tells the store to create an object only if it is absent.
    """

    client: Callable[..., Client]
    settings: Mapping[str, str]
    secrets: frozenset[str]
    endpoint_variables: tuple[str, ...]
    known_hosts: tuple[str, ...]
    create_headers: Mapping[str, str] = field(default_factory=dict)


_S3_SETTINGS: Final = {
    "endpoint": "endpoint",
    "region": "region",
    "access-key": "access_key_id",
    "secret-key": "secret_access_key",
    "session-token": "session_token",
}
_S3_SECRETS: Final = frozenset({"access-key", "secret-key", "session-token"})

_SCHEMES: Final[Mapping[str, _Scheme]] = {
    "s3": _Scheme(
        client=S3Store,
        settings=_S3_SETTINGS,
        secrets=_S3_SECRETS,
        endpoint_variables=("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        known_hosts=(".amazonaws.com", ".amazonaws.com.cn"),
    ),
    "oss": _Scheme(
        client=S3Store,
        settings=_S3_SETTINGS,
        secrets=_S3_SECRETS,
        endpoint_variables=(),
        known_hosts=(),  # the first create checks that the store keeps the condition
        create_headers={"x-oss-forbid-overwrite": "true"},
    ),
    "gs": _Scheme(
        client=GCSStore,
        settings={
            "endpoint": "base_url",
            "service-account": "service_account",
            "service-account-key": "service_account_key",
            "bearer-token": "bearer_token",
        },
        secrets=frozenset({"service-account-key", "bearer-token"}),
        endpoint_variables=("GOOGLE_BASE_URL",),
        known_hosts=(".googleapis.com",),
    ),
    "az": _Scheme(
        client=AzureStore,
        settings={
            "endpoint": "endpoint",
            "account-name": "account_name",
            "account-key": "account_key",
            "sas-token": "sas_key",
        },
        secrets=frozenset({"account-key", "sas-token"}),
        endpoint_variables=("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
        known_hosts=(".core.windows.net", ".core.chinacloudapi.cn", ".core.usgovcloudapi.net"),
    ),
}


_S3_LEASED: Final = {"access-key": "access_key_id", "secret-key": "secret_access_key", "session-token": "token"}
_LEASED: Final[Mapping[str, Mapping[str, str]]] = {
    "s3": _S3_LEASED,
    "oss": _S3_LEASED,
    "gs": {"bearer-token": "token"},
    "az": {"sas-token": "sas_token", "account-key": "access_key"},
}
"""Options that hold keys which expire, and what a client calls them when it asks for them."""
_CLIENT_ASKS_BEFORE: Final = timedelta(minutes=5)
"""The client asks for keys that long before they expire."""


@dataclass(frozen=True, slots=True)
class Target:
    """A root and its options, read and found good.

    Attributes:
        scheme: `s3`, `gs` or `az`.
        bucket: bucket or container.
        settings: settings of the client. Secrets are among them.
        allow_http: whether requests may go in the clear.
        keeps_conditions: whether the store is known, or said, to keep preconditions.
    """

    scheme: str
    bucket: str
    settings: Mapping[str, Any]
    allow_http: bool
    keeps_conditions: bool

    def __repr__(self) -> str:
        return f"Target('{self.scheme}://{self.bucket}')"


class Connection:
    """The clients of one root and set of options, shared by all threads of a process.

    Attributes:
        retrying: for requests that may be repeated.
        once: creates objects. It sends each request once.
        keeps_conditions: whether the store is known to keep preconditions. May turn true, under `lock`.
    """

    def __init__(self, target: Target, lease: Lease | None = None) -> None:
        self.retrying = _client(target, lease, retries=_RETRIES, seconds=_REQUEST_SECONDS_MAX)
        headers = _SCHEMES[target.scheme].create_headers
        self.once = _client(target, lease, retries=0, seconds=_REQUEST_ONCE_SECONDS_MAX, headers=headers)
        self.keeps_conditions = target.keeps_conditions
        self.lock = threading.Lock()


class _Connections:
    """All connections of a process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_target: OrderedDict[tuple[str, frozenset[tuple[str, str]], Lease | None], Connection] = OrderedDict()
        self.process_id: int | None = None


_CONNECTIONS: Final = _Connections()


def connect(root: str, options: Mapping[str, str], lease: Lease | None = None) -> Connection:
    """Return the connection of a root, made at the first call. Sends nothing.

    Raises:
        UnsupportedError: this process was forked from one that had connections.
    """
    with _CONNECTIONS.lock:
        if _CONNECTIONS.process_id not in (None, os.getpid()):
            raise UnsupportedError(
                f"cannot reach '{root}' from a process that was forked from one with connections to object stores: the "
                "threads behind them were not forked. Start processes with 'spawn', or fork before the first access.",
                root=root,
            )
        key = (root, frozenset(options.items()), lease)
        found = _CONNECTIONS.by_target.get(key)
        if found is None:
            found = _CONNECTIONS.by_target[key] = Connection(target_of(root, options), lease)
            _CONNECTIONS.process_id = os.getpid()
            while len(_CONNECTIONS.by_target) > _CONNECTIONS_MAX:
                _CONNECTIONS.by_target.popitem(last=False)
        _CONNECTIONS.by_target.move_to_end(key)
        return found


def _client(
    target: Target, lease: Lease | None, *, retries: int, seconds: int, headers: Mapping[str, str] | None = None
) -> Client:
    transport: dict[str, Any] = {"timeout": timedelta(seconds=seconds)}
    if headers:
        transport["default_headers"] = dict(headers)
    if target.allow_http:
        transport["allow_http"] = True
    try:
        return _SCHEMES[target.scheme].client(
            target.bucket,
            config=dict(target.settings),
            client_options=transport,
            retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=_RETRY_SECONDS_MAX)},
            **({} if lease is None else {"credential_provider": _Leased(target, lease)}),
        )
    except (StoreError, ValueError) as error:
        fact = "a setting is not known" if isinstance(error, UnknownConfigurationKeyError) else "a setting was refused"
        raise InvalidInputError(
            f"cannot connect to '{target.scheme}://{target.bucket}': {fact}. Compare its options "
            f"({', '.join(sorted(target.settings)) or 'none are given'}) and the environment.",
            root=f"{target.scheme}://{target.bucket}",
        ) from None


@dataclass(frozen=True, slots=True)
class _Leased:
    """Gives a client the keys of a lease, also in the middle of an upload."""

    target: Target
    lease: Lease = field(repr=False)

    def __call__(self) -> Any:
        """Return the keys as the client takes them."""
        scheme = self.target.scheme
        held, renewed_ms = self.lease.current()
        options = options_of(f"{scheme}://{self.target.bucket}", held)
        found: dict[str, Any] = {"expires_at": None}
        if renewed_ms is not None:  # the client asks some minutes before
            found["expires_at"] = datetime.fromtimestamp(renewed_ms / 1000, UTC) + _CLIENT_ASKS_BEFORE
        for name, given in _LEASED[scheme].items():
            if (value := options.get(f"{scheme}.{name}")) is not None:
                found[given] = value
        return found


def can_lease(root: str, options: Mapping[str, str]) -> bool:
    """Return whether options hold keys that the client of a root can renew."""
    scheme = root.partition("://")[0]
    options = options_of(root, options)
    return any(f"{scheme}.{name}" in options for name in _LEASED[scheme])


def without_keys(root: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the store of a root but for its keys."""
    scheme = root.partition("://")[0]
    secrets = {f"{scheme}.{name}" for name in _SCHEMES[scheme].secrets}
    return {key: text for key, text in options_of(root, options).items() if key not in secrets}


def options_of(root: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that concern the store of a root, by their own names."""
    scheme = root.partition("://")[0]
    own = {key: option.key if (option := find_catalog_option(key)) else key for key in options}
    older_first = sorted(options, key=lambda key: own[key] == key)  # so that the newer name counts
    return {own[key]: str(options[key]) for key in older_first if own[key].startswith(f"{scheme}.")}


def target_of(root: str, options: Mapping[str, str]) -> Target:
    """Return what a root and the options of its scheme mean.

    Raises:
        InvalidInputError: the root is none, an option is not known, or its value has no meaning.
    """
    name, _, bucket = root.partition("://")
    scheme = _SCHEMES.get(name)
    if scheme is None or not bucket or "/" in bucket:
        raise InvalidInputError(
            f"'{root}' is no root of an object store. Write 's3://<bucket>', 'oss://<bucket>', 'gs://<bucket>' or "
            "'az://<container>'.",
            root=root,
        )
    options = options_of(root, options)
    settings = _plain_settings(name, scheme, options)
    endpoint = _endpoint(name, scheme, options)
    http = endpoint is not None and endpoint.scheme == "http"
    allow_http = _flag(options, f"{name}.allow-http", default=http)
    if http and not allow_http:
        raise InvalidInputError(
            f"option '{name}.endpoint' begins with 'http:', and '{name}.allow-http' is false. Use https, or allow it.",
            option=f"{name}.endpoint",
        )
    if name == "oss" and endpoint is None:
        raise InvalidInputError(
            f"cannot connect to '{root}': an 'oss:' path needs the option 'oss.endpoint', such as "
            "'https://oss-eu-central-1.aliyuncs.com'.",
            option="oss.endpoint",
        )
    if endpoint is not None:
        settings[scheme.settings["endpoint"]] = endpoint.geturl()
    path_style = _flag(options, f"{name}.path-style-access", default=name != "oss")
    if scheme.client is S3Store and not path_style:
        settings["virtual_hosted_style_request"] = True
        if endpoint is not None and _is_address(endpoint.hostname or ""):
            raise InvalidInputError(
                f"cannot connect to '{root}': its bucket is in the name of the host, and '{endpoint.hostname}' in "
                f"'{name}.endpoint' is an address. Give the name of the host, or set '{name}.path-style-access' to "
                "true if the server takes the bucket in paths.",
                option=f"{name}.endpoint",
            )
        if endpoint is not None and not (endpoint.hostname or "").startswith(f"{bucket}."):
            settings["endpoint"] = endpoint._replace(netloc=f"{bucket}.{endpoint.netloc}").geturl()
    if _flag(options, f"{name}.anonymous", default=False):
        settings["skip_signature"] = True
    condition = options.get(f"{name}.conditional-create", "check")
    if condition not in ("check", "trust"):
        raise InvalidInputError(
            f"option '{name}.conditional-create' is '{condition}'. It is 'check' or 'trust'.",
            option=f"{name}.conditional-create",
        )
    known = endpoint is None or f".{endpoint.hostname}".endswith(scheme.known_hosts)
    return Target(name, bucket, settings, allow_http=allow_http, keeps_conditions=known or condition == "trust")


def _plain_settings(name: str, scheme: _Scheme, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that options state as they are."""
    settings: dict[str, Any] = {}
    for key, value in options.items():
        option = key.removeprefix(f"{name}.")
        if find_catalog_option(key) is None:
            own = (known.key for known in OPTIONS if known.key.startswith(f"{name}."))
            names = ", ".join(f"'{known}'" for known in sorted(own))
            raise InvalidInputError(f"unknown option '{key}'. Those of '{name}:' are {names}.", option=key)
        if option in scheme.settings:
            settings[scheme.settings[option]] = value
    if scheme.client is S3Store and ("access_key_id" in settings) != ("secret_access_key" in settings):
        raise InvalidInputError(
            f"of '{name}.access-key' and '{name}.secret-key' one is missing. Give both, or leave both to the "
            "environment.",
            option=f"{name}.access-key",
        )
    return settings


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _endpoint(name: str, scheme: _Scheme, options: Mapping[str, str]) -> SplitResult | None:
    """Return the endpoint that options or environment name."""
    variables = (os.environ.get(variable) for variable in scheme.endpoint_variables)
    text = options.get(f"{name}.endpoint") or next((value for value in variables if value), None)
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and "@" not in text and not parts.query
    except ValueError:
        good = False
    if not good:  # without the value: it may hold a password
        raise InvalidInputError(
            f"option '{name}.endpoint' is no address. Write 'https://<host>:<port>', and keys as options of their own.",
            option=f"{name}.endpoint",
        )
    return parts


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise InvalidInputError(f"option '{name}' is '{text}'. It is 'true' or 'false'.", option=name)
    return text.strip().lower() == "true"


def reason_of(error: Exception, root: str, options: Mapping[str, str]) -> str:
    """Return what an error of a client says in one line, without keys and signatures."""
    text = str(error)
    reason = text.partition("\n")[0].partition(": <")[0]  # what follows is a page of the server
    reason = re.sub(r"(https?://[^\s?]*)\?\S*", r"\1", reason).rstrip(". ")
    if found := re.search(r"<Code>(\w+)</Code>", text):
        reason = f"{reason} ({found[1]})"
    scheme = root.partition("://")[0]
    for name in _SCHEMES[scheme].secrets:
        if secret := options.get(f"{scheme}.{name}"):
            reason = reason.replace(secret, "***")
    return reason or type(error).__name__
