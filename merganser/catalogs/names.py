"""Names of databases and tables, checked: they become directories, and must not lead out of the warehouse."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from merganser.errors import InvalidInputError

_SLASHES: Final = re.compile(r"[/\\]")
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of characters that nobody sees: controls, formats (may turn text around), halves of pairs."""


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name, with what may stand behind it.

    Attributes:
        branch: of `table$branch_<branch>`, else "main".
        system: of `table$<system>`, else None.
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
        InvalidInputError: not such a name, or one that would lead out of the warehouse.
    """
    if not isinstance(name, str) or "." not in name:
        raise InvalidInputError(f"'{name}' is not a table name. Write database.table.", name=name)
    database, _, rest = name.partition(".")
    table, dollar, behind = rest.partition("$")
    branch, system = branch_and_system(name, behind) if dollar else ("main", None)
    return TableName(check_name(database, what="database"), check_name(table, what="table"), branch, system)


def branch_and_system(name: str, behind: str) -> tuple[str, str | None]:
    """Return the branch, else "main", and the system table, or None, that stand behind the first `$` of a name.

    Raises:
        InvalidInputError: what stands there is neither.
    """
    branch, system = "main", None
    for part in behind.split("$"):
        if part.startswith("branch_") and branch == "main" and system is None:
            branch = check_name(part.removeprefix("branch_"), what="branch")
        elif system is None and part:
            system = part
        else:
            raise InvalidInputError(
                f"'{name}' is not a table name: what stands after '$' is a branch (branch_<name>) or a system table.",
                name=name,
            )
    return branch, system


def check_name(name: str, *, what: str) -> str:
    """Return the name, when it may become a directory.

    Raises:
        InvalidInputError: it is blank, hidden, holds a slash or a character that cannot be seen, or is too long.
    """
    why = None
    if not isinstance(name, str) or not name.strip():
        why = "it is blank"
    elif name != name.strip():
        why = "it begins or ends with a blank"
    elif name.startswith("."):
        why = "it begins with a dot"
    elif _SLASHES.search(name):
        why = "it holds a slash or a backslash"
    elif hidden := next((c for c in name if unicodedata.category(c) in _INVISIBLE), None):
        why = f"it holds the character U+{ord(hidden):04X}, which cannot be seen"
    elif "$" in name or ("." in name and what != "branch"):
        why = "it holds a '.' or '$'"
    elif len(name.encode()) > 200:
        why = f"it has {len(name.encode())} bytes, and 200 are the most"
    if why:
        raise InvalidInputError(f"{name!r} cannot be the name of a {what}: {why}.", name=name)
    return name
