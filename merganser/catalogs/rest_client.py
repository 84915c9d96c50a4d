"""A client of REST catalogs, as Apache Paimon's protocol has it: requests with tokens, retries, pages and errors.

A request that reads or removes is repeated if the connection fails, or if the server is busy (429, 503). One that makes
something is repeated only if the server has surely not begun it: its caller looks what is there. Waits grow from one
attempt to the next, and are at least as long as the server asks for (`Retry-After`).
"""

from __future__ import annotations

import importlib
import json
import os
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from importlib.metadata import entry_points
from typing import Any, Final, NoReturn
from urllib.parse import quote_plus

import requests
import urllib3

from merganser.catalogs.rest_signing import DlfSigner
from merganser.errors import (
    AlreadyExistsError,
    InvalidInputError,
    MerganserError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from merganser.storage.retries import MACHINE, Retries
from merganser.values import dataclass

GROUP: Final = "merganser.rest_auth"
"""Entry points that sign requests, by the names that the option `token.provider` may have."""
BEARER: Final = "bear"
_TIMEOUT_S: Final = (10, 180)
"""Seconds to connect, and to wait for a reply."""
_RETRIES: Final = Retries(attempts=6, first_wait_ms=200, growth=2, longest_wait_ms=10_000)
_WAIT_MAX_S: Final = 60.0
"""Maximum of a wait that a server asks for."""
_BUSY: Final = (429, 503)
_ERRORS: Final[Mapping[int, type[MerganserError]]] = {
    400: InvalidInputError,
    404: NotFoundError,
    409: AlreadyExistsError,
    501: UnsupportedError,
}

Sign = Callable[[str, str, Mapping[str, str], bytes], Mapping[str, str]]
"""Returns the headers that say who asks, given method, path, query and body of a request."""


@dataclass(frozen=True)
class RestClient:
    """Asks a server. It pickles, with the token.

    Attributes:
        uri: address of the server.
        provider: who signs requests: "bear", "dlf", `module:function`, or the name of an entry point.
        token: what "bear" sends.
        signer: of "dlf".
        ca_file: certificates that the server has to prove itself by; None: those of this machine.
        headers: more headers of each request.
        prefix: what all paths begin with, as the server says.
    """

    uri: str
    provider: str | None = None
    token: str | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    prefix: str = ""
    signer: DlfSigner | None = None
    ca_file: str | None = None

    def get(self, *path: str, **query: str) -> Any:
        """Return the JSON of a resource; see `ask` for errors.

        Args:
            path: parts of the path behind the prefix, not escaped.
        """
        return self.ask("GET", self.path(*path), query)

    def post(self, *path: str, body: Mapping[str, Any]) -> Any:
        """Send JSON, and return that of the reply; see `ask` for errors."""
        return self.ask("POST", self.path(*path), {}, body)

    def delete(self, *path: str) -> None:
        """Remove a resource; see `ask` for errors."""
        self.ask("DELETE", self.path(*path), {})

    def pages(self, key: str, *path: str) -> list[str]:
        """Return the entries of all pages of a list, in order."""
        found: list[str] = []
        query: dict[str, str] = {}
        while True:
            page = self.get(*path, **query)
            found += page.get(key) or []
            token = page.get("nextPageToken")
            if not token:
                return sorted(found)
            query = {"pageToken": str(token)}

    def path(self, *parts: str) -> str:
        """Return a path behind the prefix, escaped as Java's URLEncoder does it: a blank is `+`, a plus is `%2B`.

        Servers decode paths with its inverse, in which `%20` is a blank as well.
        """
        every = (self.prefix, *parts) if self.prefix else parts
        return "/".join(("/v1", *(quote_plus(part, safe="*") for part in every)))

    def ask(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None) -> Any:
        """Send a request, and return the JSON of the reply; an empty one is {}.

        Raises:
            NotFoundError, AlreadyExistsError, InvalidInputError, UnsupportedError: the server says so; nothing was
                changed.
            StorageError: the server does not answer, or refuses the client. Its context has `changed` = False if
                nothing was changed; else that is unknown.
        """
        data = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        renewed = False
        for attempt in _RETRIES.each():
            try:
                reply = self._sent(method, path, query, data)
                if reply.status_code == 401 and not renewed and self.provider not in (None, BEARER):
                    renewed = True  # the token of before may just have expired
                    if self.signer is not None:
                        self.signer.forget()
                    reply = self._sent(method, path, query, data)
            except requests.RequestException as error:
                if _is_untrusted(error):
                    raise self._untrusted(error) from None
                begun = method == "POST" and not _is_unsent(error)
                if begun or attempt.is_last:
                    self._raise_lost(error, unknown=begun)
                continue
            is_busy = reply.status_code in _BUSY and (method != "POST" or reply.status_code == 429)
            if not is_busy or attempt.is_last:
                return self._read(reply, method, path)
            MACHINE.sleep_ms(1000 * _asked_wait_s(reply))
        raise AssertionError("the last attempt returns or raises")

    def _sent(self, method: str, path: str, query: Mapping[str, str], data: bytes) -> requests.Response:
        headers = {**dict(self.headers), "Accept": "application/json"}
        if data:
            headers["Content-Type"] = "application/json"
        if self.provider == BEARER:
            headers["Authorization"] = f"Bearer {self.token}"
        elif self.signer is not None:
            headers.update(self.signer.headers(method, path, query, data))
        elif self.provider is not None:
            headers.update(sign_of(self.provider)(method, path, query, data))
        return _session().request(
            method,
            self.uri + path,
            params=dict(query),
            data=data,
            headers=headers,
            timeout=_TIMEOUT_S,
            auth=_as_it_is,
            verify=self.ca_file,
        )

    def _read(self, reply: requests.Response, method: str, path: str) -> Any:
        try:
            found = reply.json() if reply.content else {}
        except ValueError:
            found = None
        status = reply.status_code
        if 200 <= status < 300 and isinstance(found, dict):
            return found
        told = found.get("message") if isinstance(found, dict) else None
        what = f"the catalog at '{self.uri}' answered {method} {path} with {status}"
        if status in (401, 403):
            hint = "Use a token of a client that may do this"
            if self.provider is None:
                hint = "Set the options 'token.provider' to 'bear' and 'token' to a token of the server"
            elif self.signer is not None:
                hint = "Check the keys that sign requests, 'dlf.region', and the clock of this machine"
            elif status == 401:
                hint = "Set the option 'token' to a token of the server that has not expired"
            raise StorageError(f"{what}: {told or 'it refuses the client'} Nothing was changed. {hint}.", changed=False)
        if status in _ERRORS and isinstance(found, dict):
            facts = {}
            if found.get("resourceType") and found.get("resourceName") is not None:
                facts = {str(found["resourceType"]).lower(): str(found["resourceName"])}
            raise _ERRORS[status](f"{what}: {told or 'it gives no reason.'}", **facts)
        raise StorageError(
            f"{what}: {told or 'its reply is not JSON'}. Look into the log of the server.",
            **({"changed": False} if status == 429 else {}),
        )

    def _untrusted(self, error: requests.RequestException) -> StorageError:
        """Return the error of a server that does not prove who it is, or of a file that holds no certificates."""
        why = found[1] if (found := re.search(r"certificate verify failed: ([^(]*)", str(error))) else "no certificates"
        return StorageError(
            f"the catalog at '{self.uri}' is not trusted: {why.strip()}. Nothing was sent. Set the option "
            "'tls.ca-file' to a file with the certificate of its authority, and ask it by the name in its certificate.",
            changed=False,
        )

    def _raise_lost(self, error: requests.RequestException, *, unknown: bool) -> NoReturn:
        reason = type(error).__name__
        if not unknown:
            raise StorageError(
                f"the catalog at '{self.uri}' does not answer ({reason}). Nothing was changed. Check the address and "
                "whether the server runs.",
                changed=False,
            ) from None
        raise StorageError(
            f"the catalog at '{self.uri}' was asked to make something, and its reply was lost ({reason}). Check what "
            "is there before you try again."
        ) from None


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keep the header of the token. Without this, a password of ~/.netrc would replace it."""
    return request


_local: Final = threading.local()


def _session() -> requests.Session:
    """Return the session of this thread. A forked process does not share the connections of its parent."""
    if getattr(_local, "process", None) != os.getpid():
        _local.process, _local.session = os.getpid(), requests.Session()
    found: requests.Session = _local.session
    return found


def sign_of(provider: str) -> Sign:
    """Return the function that signs requests.

    Raises:
        InvalidInputError: there is none of this name.
    """
    try:
        if ":" in provider:
            module, _, name = provider.partition(":")
            found: Sign = getattr(importlib.import_module(module), name)
            return found
        points = list(entry_points(group=GROUP, name=provider))
        if len(points) != 1:
            raise ValueError(f"{'none' if not points else 'more than one'} has this name")
        loaded: Sign = points[0].load()
        return loaded
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(
            f"cannot sign requests with 'token.provider' = '{provider}': {error}. Nothing was changed. Give 'bear', "
            f"'dlf', module:function, or the name of an entry point of '{GROUP}'.",
            option="token.provider",
        ) from error


def _is_untrusted(error: requests.RequestException) -> bool:
    """Return whether there was no connection, since the certificate of the server is not one that is trusted."""
    reason: Any = getattr(error.args[0], "reason", None) if error.args else None
    cause = reason.args[0] if isinstance(reason, urllib3.exceptions.SSLError) and reason.args else reason
    return isinstance(error, requests.exceptions.SSLError) and (
        isinstance(cause, ssl.SSLCertVerificationError) or "PEM" in str(cause) or "NO_CERTIFICATE" in str(cause)
    )


def _is_unsent(error: requests.RequestException) -> bool:
    """Return whether a server has surely not got a request: there was no connection."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(reason, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError)


def _asked_wait_s(reply: requests.Response) -> float:
    text = reply.headers.get("Retry-After", "")
    return min(float(text), _WAIT_MAX_S) if text.isascii() and text.isdigit() else 0.0
