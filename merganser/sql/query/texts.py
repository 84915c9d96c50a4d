"""Upper and lower case as Java has them: some letters become several, and a sigma depends on what is around it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from merganser.sql.query.kinds import string

_LAST: Final = 0xFB18
"""Above it, no letter becomes several."""
_CASED: Final = r"\p{Lu}\p{Ll}\p{Lt}ªº"
_BETWEEN: Final = r"\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:·’"


@cache
def macros() -> list[str]:
    """Return the macros `_upper`, `_lower` and `_initcap`. The functions of DuckDB change each letter into one."""
    upper, title = _special(str.upper), _special(str.title, str.upper)
    each = "array_to_string(list_transform(string_split(s, ''), lambda _c: coalesce({}[_c], upper(_c))), '')"
    final = f"([{_CASED}][{_BETWEEN}]*)Σ([{_BETWEEN}]*)($|[^{_CASED}{_BETWEEN}])"
    return [
        f"CREATE MACRO _upper(s) AS CASE WHEN regexp_matches(s, '[{''.join(upper)}]') "
        f"THEN {each.format(_map(upper))} ELSE upper(s) END",
        f"CREATE MACRO _lower(s) AS CASE WHEN contains(s, 'Σ') OR contains(s, 'İ') "
        f"THEN lower(regexp_replace(replace(s, 'İ', 'i\u0307'), {string(final)}, '\\1ς\\2\\3', 'g')) ELSE lower(s) END",
        f"CREATE MACRO _initial(c) AS coalesce({_map(title)}[c], upper(c))",
        "CREATE MACRO _initcap(s) AS array_to_string(list_transform(string_split(s, ' '), "
        "lambda _w: coalesce(_initial(_w[1:1]), '') || _lower(_w)[CASE WHEN starts_with(_w, 'İ') THEN 3 ELSE 2 END:]), "
        "' ')",
    ]


def _special(change: Callable[[str], str], usual: Callable[[str], str] | None = None) -> dict[str, str]:
    """Return the letters that change into several, or otherwise than usual."""
    found = {}
    for code in range(0x80, _LAST):
        if not 0xD800 <= code < 0xE000:
            made = change(chr(code))
            if len(made) > 1 or (usual is not None and made != usual(chr(code))):
                found[chr(code)] = made
    return found


def _map(pairs: dict[str, str]) -> str:
    keys, values = (", ".join(string(text) for text in texts) for texts in (pairs, pairs.values()))
    return f"MAP([{keys}], [{values}])"
