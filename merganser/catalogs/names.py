"""Checks names of databases and tables. Names become directories and must not lead out of the warehouse."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from merganser.errors import InvalidInputError
from merganser.values import dataclass

_SLASHES: Final = re.compile(r"[/\\]")
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of invisible characters: controls, formats (may reverse text), halves of surrogate pairs."""


SYSTEM: Final = "sys"
"""The database of the system tables of a catalog. `create_database` refuses this name."""


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table, with an optional branch and system table.

    Attributes:
        branch: the branch in `table$branch_<branch>`, else "main".
        system: the system table in `table$<system>`, else None.
    """

    database: str
    table: str
    branch: str = "main"
    system: str | None = None

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


def parse_table_name(name: str) -> TableName:
    """Return the parts of `database.table`, `database.table$system`, `database.table$branch_b$system`.

    Raises:
        InvalidInputError: the name is malformed, or leads out of the warehouse.
    """
    if not isinstance(name, str) or "." not in name:
        raise InvalidInputError(f"'{name}' is not a table name. Write database.table.", name=name)
    database, _, rest = name.partition(".")
    table, dollar, behind = rest.partition("$")
    branch, system = branch_and_system(name, behind) if dollar else ("main", None)
    return TableName(check_name(database, what="database"), check_name(table, what="table"), branch, system)


def branch_and_system(name: str, behind: str) -> tuple[str, str | None]:
    """Return the branch (default "main") and the system table (or None) after the first `$` of a name.

    Raises:
        InvalidInputError: the text after `$` is neither of them.
    """
    branch, system = "main", None
    for part in behind.split("$"):
        if part.startswith("branch_") and branch == "main" and system is None:
            branch = check_name(part.removeprefix("branch_"), what="branch")
        elif system is None and part:
            system = part
        else:
            raise InvalidInputError(
                f"'{name}' is not a table name: after '$' comes a branch (branch_<name>) or a system table.",
                name=name,
            )
    return branch, system


def check_name(name: str, *, what: str) -> str:
    """Return the name if it can be a directory.

    Raises:
        InvalidInputError: it is blank, hidden or too long, or contains a slash or an invisible character.
    """
    why = None
    if not isinstance(name, str) or not name.strip():
        why = "it is blank"
    elif name != name.strip():
        why = "it begins or ends with a blank"
    elif name.startswith("."):
        why = "it begins with a dot"
    elif _SLASHES.search(name):
        why = "it contains a slash or a backslash"
    elif hidden := next((c for c in name if unicodedata.category(c) in _INVISIBLE), None):
        why = f"it contains the character U+{ord(hidden):04X}, which is invisible"
    elif "$" in name or ("." in name and what != "branch"):
        why = "it contains a '.' or '$'"
    elif len(name.encode()) > 200:
        why = f"it has {len(name.encode())} bytes, and at most 200 are allowed"
    if why:
        raise InvalidInputError(f"{name!r} cannot be the name of a {what}: {why}.", name=name)
    return name
