"""Which options hold secrets, and how options are shown to people.

Options of a table are stored in clear beside its data. So a credential is refused as one, and where another engine
stored it all the same, people see `HIDDEN` instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from merganser.errors import InvalidInputError
from merganser.options.option import Options

HIDDEN: Final = "***"
"""The text that is shown in place of a secret."""

# Looked for in the letters and digits of a key alone: stores write `access-key`, `access.key` and `accessKey`.
_PARTS: Final = re.compile(
    r"passw(or)?d|passphrase|secret|token(?!i[sz]|provider|path|loader|ecs|enabled)|credential|authorization|jaas"
    r"|(access|account|encryption|private|api|keystore)key|keypem|oauthbearerconfig"
)
# Too short for that: `sas` is in `class-assigner`, and in the harmless `sasl.mechanism`.
_WORDS: Final = frozenset({"sas", "pwd"})
_COLUMNS: Final = ("fields.", "file-index.")
"""Beginnings of keys whose next part is the name of a column: `fields.token.aggregate-function` is no secret."""

_PASSWORD: Final = re.compile(r"(://[^\s/?#@:]*:)[^\s/?#]+@")
"""The password of an address such as `jdbc:postgresql://user:password@host/name`."""


def is_secret(key: str) -> bool:
    """Return whether the key of an option says that its value is a secret."""
    folded = key.lower()
    if folded.startswith(_COLUMNS):
        return False
    words = re.split(r"[^a-z0-9]+", folded)
    return bool(_PARTS.search("".join(words))) or not _WORDS.isdisjoint(words)


def shown(options: Mapping[str, str]) -> Options:
    """Return options as people may see them: secrets are `HIDDEN`, and so are the passwords in addresses."""
    return Options({
        key: HIDDEN if is_secret(key) else _PASSWORD.sub(rf"\1{HIDDEN}@", text) for key, text in options.items()
    })  # fmt: skip


def check_no_secrets(keys: Iterable[object], *, what: str) -> None:
    """Refuse to store a secret.

    Args:
        keys: of options that would be stored with a table.
        what: beginning of the message, such as "cannot create 'db.orders'".

    Raises:
        InvalidInputError: names the option, and where secrets belong; never the value.
    """
    for key in keys:
        if isinstance(key, str) and is_secret(key):
            raise InvalidInputError(
                f"{what}: option '{key}' holds a secret, and the options of a table are stored in clear, where every "
                "reader finds them. Nothing was written. Give credentials to merganser.catalog(warehouse, options=...) "
                "or merganser.table(path, options=...) instead, to --store on the command line, or to the store's own "
                "environment.",
                option=key,
            )
