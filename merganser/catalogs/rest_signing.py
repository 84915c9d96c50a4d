"""Signatures of requests for Aliyun's DLF, as Apache Paimon's clients make them, and the keys that they are made with.

    default    DLF4-HMAC-SHA256: endpoints inside of a network, such as cn-hangzhou-vpc.dlf.aliyuncs.com
    openapi    HMAC-SHA1 with a nonce: public endpoints, such as dlfnext.cn-hangzhou.aliyuncs.com

Keys are options, or a loader gives them: a file, or the service of an ECS machine that says which role it has. What a
loader gave is kept until it has less than an hour left, and is loaded again when the server refuses it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote_plus, unquote_plus

import requests

from merganser.errors import InvalidInputError, NotFoundError, StorageError
from merganser.options import catalog as c
from merganser.options.option import Options
from merganser.storage.local import LocalStorage
from merganser.storage.retries import MACHINE, Retries
from merganser.values import dataclass

DLF: Final = "dlf"
_ALGORITHM: Final = "DLF4-HMAC-SHA256"
_PRODUCT: Final = "DlfNext"
_REQUEST: Final = "aliyun_v4_request"
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_JSON: Final = "application/json"
_OPENAPI_VERSION: Final = "2026-01-18"
_SIGNED: Final = (
    "content-md5",
    "content-type",
    "x-dlf-content-sha256",
    "x-dlf-date",
    "x-dlf-security-token",
    "x-dlf-version",
)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_REGION: Final = re.compile(r"(?:pre-)?([a-z]+-[a-z]+(?:-\d+)?)")
_EXPIRES: Final = "%Y-%m-%dT%H:%M:%SZ"
_SAFE_MS: Final = 3_600_000
"""Milliseconds before their end from which on keys are loaded again. Paimon's clients use the same."""
_TIMEOUT_S: Final = (10, 60)
_RETRIES: Final = Retries(attempts=4, first_wait_ms=200, growth=3, longest_wait_ms=2_000)
"""A file may be read while it is replaced."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What signs requests.

    Attributes:
        security_token: of a session; None: the keys are those of a user.
        expires_ms: epoch milliseconds; None: never.
    """

    id: str = field(repr=False)
    secret: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DlfSigner:
    """Signs requests. It pickles, with the keys that are options.

    Attributes:
        host: of the server, with the port if the address has one.
        algorithm: "default" or "openapi".
        keys: None if a loader gives them.
        loader: "local-file" or "ecs".
        place: path of the file, or address of the service.
        role: of the machine; None: the service says it.
    """

    host: str
    region: str
    algorithm: str = "default"
    keys: Keys | None = field(default=None, repr=False)
    loader: str | None = None
    place: str = ""
    role: str | None = None

    def headers(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the headers that sign a request.

        Args:
            path: as it is sent, escaped.
            query: not escaped.

        Raises:
            StorageError: the keys cannot be loaded.
        """
        return self.signed(method, path, query, body, self._fresh(), MACHINE.now(), MACHINE.new_id())

    def signed(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, keys: Keys, now: datetime, nonce: str
    ) -> dict[str, str]:
        """Return the headers that sign a request with these keys at this time."""
        if self.algorithm == "openapi":
            return self._by_openapi(method, path, query, body, keys, now, nonce)
        return self._by_default(method, path, query, body, keys, now)

    def forget(self) -> None:
        """Load the keys again before the next request."""
        with _LOADED.lock:
            _LOADED.keys.pop(self, None)

    # signatures

    def _by_default(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, keys: Keys, now: datetime
    ) -> dict[str, str]:
        time = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {"x-dlf-date": time, "x-dlf-content-sha256": _UNSIGNED, "x-dlf-version": "v1"}
        if body:
            headers |= {"Content-Type": _JSON, "Content-MD5": _md5(body)}
        if keys.security_token is not None:
            headers["x-dlf-security-token"] = keys.security_token
        lowered = {key.lower(): text.strip() for key, text in headers.items()}
        asked = "&".join(f"{key}={_escaped(text)}" if text else key for key, text in sorted(query.items()))
        signed = [f"{key}:{lowered[key]}" for key in _SIGNED if key in lowered]
        canonical = "\n".join((method, path, asked, *signed, _UNSIGNED))
        scope = (time[:8], self.region, _PRODUCT, _REQUEST)
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = f"aliyun_v4{keys.secret}".encode()
        for part in scope:
            key = _hmac(key, part)
        signature = _hmac(key, "\n".join((_ALGORITHM, time, "/".join(scope), digest))).hex()
        return {
            **headers,
            "Authorization": f"{_ALGORITHM} Credential={'/'.join((keys.id, *scope))},Signature={signature}",
        }

    def _by_openapi(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, keys: Keys, now: datetime, nonce: str
    ) -> dict[str, str]:
        at = now.astimezone(UTC)
        date = f"{_DAYS[at.weekday()]}, {at.day:02} {_MONTHS[at.month - 1]} {at:%Y %H:%M:%S} GMT"
        of_body = {"Content-MD5": _md5(body), "Content-Type": _JSON} if body else {}
        acs = {
            "x-acs-signature-method": "HMAC-SHA1",
            "x-acs-signature-nonce": nonce,
            "x-acs-signature-version": "1.0",
            "x-acs-version": _OPENAPI_VERSION,
        }
        if keys.security_token is not None:
            acs["x-acs-security-token"] = keys.security_token
        asked = "&".join(f"{key}={text}" if text else key for key, text in sorted(query.items()))
        resource = unquote_plus(path) + (f"?{asked}" if query else "")
        told = "".join(f"{key}:{text.strip()}\n" for key, text in sorted(acs.items()))
        lines = (method, _JSON, of_body.get("Content-MD5", ""), of_body.get("Content-Type", ""), date, told + resource)
        digest = hmac.new(keys.secret.encode(), "\n".join(lines).encode(), hashlib.sha1).digest()
        return {
            "Date": date,
            "Accept": _JSON,
            "Host": self.host,
            **of_body,
            **acs,
            "Authorization": f"acs {keys.id}:{base64.b64encode(digest).decode()}",
        }

    # keys

    def _fresh(self) -> Keys:
        if self.keys is not None:
            return self.keys
        with _LOADED.lock:
            found = _LOADED.keys.get(self)
            now_ms = MACHINE.now().timestamp() * 1000
            if found is None or (found.expires_ms is not None and found.expires_ms - now_ms < _SAFE_MS):
                found = _LOADED.keys[self] = self._loaded()
            return found

    def _loaded(self) -> Keys:
        if self.loader == "ecs":
            role = self.role or _asked(self.place).strip()
            return _keys_of(_asked(f"{self.place.rstrip('/')}/{role}"), self.place)

        def read() -> Keys:
            try:
                return _keys_of(LocalStorage().read(self.place).decode(), self.place)
            except (NotFoundError, UnicodeDecodeError) as error:
                raise _unreadable(self.place, "there is no such file") from error

        return _RETRIES.run(read, StorageError, lambda _: True)


class _Loaded:
    """Keys of this process, by the source that they were loaded from."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.keys: dict[DlfSigner, Keys] = {}


_LOADED: Final = _Loaded()


def signer_of(options: Options, uri: str, what: str) -> DlfSigner:
    """Return the signer that options ask for.

    Args:
        what: beginning of the message.

    Raises:
        InvalidInputError: options are missing, or have no meaning.
    """
    host = uri.partition("://")[2].partition("/")[0]
    region = options.get(c.DLF_REGION) or (found[1] if (found := _REGION.search(uri)) else None)
    if region is None:
        raise _missing(what, c.DLF_REGION.key, f"and '{host}' names no region")
    algorithm = options.get(c.DLF_ALGORITHM) or ("openapi" if "dlfnext" in uri.lower() else "default")
    path, loader = options.get(c.DLF_TOKEN_PATH), options.get(c.DLF_TOKEN_LOADER)
    if loader == "ecs":
        return DlfSigner(
            host, region, algorithm, loader=loader, place=options.get(c.DLF_ECS_URL), role=options.get(c.DLF_ECS_ROLE)
        )
    if loader is not None or path is not None:
        if path is None:
            raise _missing(what, c.DLF_TOKEN_PATH.key, f"which '{c.DLF_TOKEN_LOADER.key}' = '{loader}' needs")
        return DlfSigner(host, region, algorithm, loader="local-file", place=os.path.abspath(os.path.expanduser(path)))
    name, secret = options.get(c.DLF_KEY_ID), options.get(c.DLF_KEY_SECRET)
    if name is None or secret is None:
        lacks = c.DLF_KEY_ID if name is None else c.DLF_KEY_SECRET
        raise _missing(
            what,
            lacks.key,
            f"and so are '{c.DLF_TOKEN_PATH.key}' and '{c.DLF_TOKEN_LOADER.key}', which say where keys are loaded from",
        )
    return DlfSigner(host, region, algorithm, Keys(name, secret, options.get(c.DLF_SECURITY_TOKEN)))


def _missing(what: str, key: str, more: str) -> InvalidInputError:
    return InvalidInputError(f"{what}: the option '{key}' is missing, {more}. Nothing was opened.", option=key)


def _keys_of(text: str, place: str) -> Keys:
    """Return keys from JSON. No error holds any of the text."""
    try:
        found = json.loads(text)
        name, secret, token = found["AccessKeyId"], found["AccessKeySecret"], found.get("SecurityToken")
        until = found.get("Expiration")
        expires = None if until is None else datetime.strptime(until, _EXPIRES).replace(tzinfo=UTC).timestamp() * 1000
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _unreadable(place, "it is no JSON with 'AccessKeyId', 'AccessKeySecret' and 'Expiration'") from None
    if not all(isinstance(each, str) for each in (name, secret, token or "")):
        raise _unreadable(place, "its keys are no texts")
    return Keys(name, secret, token, None if expires is None else int(expires))


def _asked(url: str) -> str:
    try:
        reply = requests.get(url, timeout=_TIMEOUT_S)
    except requests.RequestException as error:
        raise _unreadable(url, f"it does not answer ({type(error).__name__})") from None
    if reply.status_code != 200:
        raise _unreadable(url, f"it answered with {reply.status_code}")
    return reply.text


def _unreadable(place: str, why: str) -> StorageError:
    return StorageError(
        f"cannot load the keys that sign requests from '{place}': {why}. Nothing was sent to the catalog.",
        changed=False,
    )


def _md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _escaped(text: str) -> str:
    """Return a text as Java's URLEncoder has it."""
    return quote_plus(text, safe="*").replace("~", "%7E").strip()
