"""Profiles: names of catalogs, with their options, in `~/.merganser/catalogs.toml` or the file in MERGANSER_CATALOGS.

::

    [prod]
    uri = "jdbc:postgresql://db.example.com:5432/catalog"
    warehouse = "s3://tables/warehouse"
    jdbc.user = "reader"
    jdbc.password = "${PROD_PASSWORD}"
    s3.secret-key = "keyring:prod"

A secret stands in the environment (`${NAME}`) or in the keyring of the system (`keyring:NAME`, with the key of the
option as its user), and not in the file.
"""

from __future__ import annotations

import importlib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.options.catalog import URI, WAREHOUSE
from merganser.options.secrets import is_secret
from merganser.storage.local import LocalStorage
from merganser.values import dataclass

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
KEYRING: Final = "keyring:"
_NEAR: Final = 0.7
"""Minimum likeness of a text to the name of a profile that it may have been meant for: "prdo" is 0.75 like "prod"."""


@dataclass(frozen=True)
class Profile:
    """A catalog with a name.

    Attributes:
        name: of the section.
        options: as they stand in the file: references in place of secrets.
    """

    name: str
    options: Mapping[str, str]

    @property
    def address(self) -> str:
        """What `catalog` gets as its argument."""
        return self.options.get(URI.key) or self.options[WAREHOUSE.key]

    def opened(self) -> dict[str, str]:
        """Return the options of the catalog, with secrets from the environment and the keyring.

        Raises:
            InvalidInputError: a variable or an entry of the keyring is missing.
            UnsupportedError: there is no package for the keyring.
        """
        found = {key: self._value(key, text) for key, text in self.options.items()}
        found.pop(URI.key if URI.key in found else WAREHOUSE.key)
        return found

    def _value(self, key: str, text: str) -> str:
        if text.startswith(KEYRING):
            value = keyring_of(f"cannot open the catalog '{self.name}'").get_password(text.removeprefix(KEYRING), key)
            if value is None:
                raise InvalidInputError(
                    f"cannot open the catalog '{self.name}': the keyring has no '{key}' of "
                    f"'{text.removeprefix(KEYRING)}'. Run: merganser login {self.name}",
                    option=key,
                )
            return str(value)

        def variable(match: re.Match[str]) -> str:
            try:
                return os.environ[match[1]]
            except KeyError:
                raise InvalidInputError(
                    f"cannot open the catalog '{self.name}': its option '{key}' is in the environment variable "
                    f"{match[1]}, which is not set.",
                    option=key,
                ) from None

        return _VARIABLE.sub(variable, text)


def profiles_path() -> Path:
    """Return the file of the profiles, which need not exist."""
    asked = os.environ.get("MERGANSER_CATALOGS")
    return Path(asked) if asked else Path.home() / ".merganser" / "catalogs.toml"


def profiles() -> dict[str, Profile | InvalidInputError]:
    """Return all profiles by name, in the order of the file; in place of one that cannot be used, what is wrong.

    Raises:
        InvalidInputError: the file is no TOML.
    """
    found: dict[str, Profile | InvalidInputError] = {}
    for name, section in _sections().items():
        try:
            found[name] = _profile(name, section, profiles_path())
        except InvalidInputError as error:
            found[name] = error
    return found


def _sections() -> dict[str, Any]:
    path = profiles_path()
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(f"cannot read the catalogs in '{path}': {error}.", path=str(path)) from error


def profile_of(name: str) -> Profile | None:
    """Return the profile of a name; None: there is none, or the text is a path or an address.

    A fault of another profile is none of this one.

    Raises:
        InvalidInputError: the file is no TOML, or the section is no catalog, or it holds a secret in clear.
    """
    if _NAME.fullmatch(name) is None:
        return None
    found = profiles().get(name)
    if isinstance(found, InvalidInputError):
        raise found
    return found


def check_is_no_profile(name: str) -> None:
    """Refuse a text that is almost the name of a profile, unless it is a directory.

    Raises:
        InvalidInputError: it is almost a name. It would be a new, empty warehouse in the working directory.
    """
    if _NAME.fullmatch(name) is None:
        return
    near = get_close_matches(name, list(_sections()), n=1, cutoff=_NEAR)
    if near and name not in {each.name for each in LocalStorage().list(os.getcwd()) if each.is_directory}:
        raise InvalidInputError(
            f"there is no catalog '{name}' in '{profiles_path()}', and no such directory. Did you mean '{near[0]}'? "
            f"Write './{name}' for a new directory. Nothing was opened.",
            name=name,
        )


def keyring_of(what: str) -> Any:
    """Return the package that reads the keyring of the system.

    Raises:
        UnsupportedError: it is not installed.
    """
    try:
        return importlib.import_module("keyring")
    except ImportError:
        raise UnsupportedError(
            f"{what}: the package keyring is missing. Nothing was opened. Run pip install 'merganser[keyring]', or put "
            "the secret into the environment: '${NAME}'."
        ) from None


def _profile(name: str, section: object, path: Path) -> Profile:
    what = f"cannot read the catalog '{name}' in '{path}'"
    if _NAME.fullmatch(name) is None:
        raise InvalidInputError(f"{what}: a name has letters, digits, '-' and '_'.", path=str(path))
    if not isinstance(section, dict):
        raise InvalidInputError(f"{what}: write its options below a line [{name}].", path=str(path))
    for key in (URI.key, WAREHOUSE.key):
        if not isinstance(section.get(key, ""), str | dict):
            raise InvalidInputError(f"{what}: '{key}' is {section[key]!r:.50}. Give text.", option=key, path=str(path))
    options = dict(_texts(section, "", what))
    if WAREHOUSE.key not in options and URI.key not in options:
        raise InvalidInputError(f"{what}: it has neither '{WAREHOUSE.key}' nor '{URI.key}'.", path=str(path))
    for key, text in options.items():
        if is_secret(key) and not text.startswith(KEYRING) and _VARIABLE.fullmatch(text) is None:
            raise InvalidInputError(
                f"{what}: '{key}' holds a secret in clear. Write '${{NAME}}' for a variable of the environment, or "
                f"'{KEYRING}{name}' and run: merganser login {name}",
                option=key,
                path=str(path),
            )
    for key in (URI.key, WAREHOUSE.key):
        if any(_VARIABLE.fullmatch(found) is None for found in _passwords(options.get(key, ""))):
            raise InvalidInputError(
                f"{what}: '{key}' holds a password in clear. Leave it out and give it as an option, such as "
                "jdbc.password = '${NAME}', or write '${NAME}' in its place.",
                option=key,
                path=str(path),
            )
    return Profile(name, options)


def _passwords(address: str) -> Iterator[str]:
    """Yield the passwords that stand in an address."""
    before, _, query = address.partition("?")
    host = before.partition("//")[2].partition("/")[0]
    if password := host.rpartition("@")[0].partition(":")[2]:
        yield password
    yield from (value for key, value in parse_qsl(query) if is_secret(key))


def _texts(section: Mapping[str, object], before: str, what: str) -> Iterator[tuple[str, str]]:
    for key, value in section.items():
        full = f"{before}{key}"
        if isinstance(value, dict):
            yield from _texts(value, f"{full}.", what)
        elif isinstance(value, bool):
            yield full, str(value).lower()
        elif isinstance(value, str | int | float):
            yield full, str(value)
        else:
            raise InvalidInputError(f"{what}: '{full}' is {value!r:.50}. Give text, a number or true.", option=full)
