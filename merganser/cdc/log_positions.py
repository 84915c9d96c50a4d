"""Positions in the log of a source, as texts that sort as the log does.

As they are written, "98532" comes after "1000230", and "binlog.999999" after "binlog.1000000". So each number gets a
letter in front that counts its digits: "f98532", "h1000230". Letters come after digits, so a position in this form
comes after all that were stored without letters.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.parsing.cells import Cells

LOG_POSITIONS: Final = ("position", "gtid")
"""Metadata that this module makes sortable."""
_FORMS: Final = (
    (r"^(?P<n1>[0-9]+)$", ("n1",)),  # an LSN
    (r"^(?P<t1>[^:]*[^0-9:])(?P<n1>[0-9]+):(?P<n2>[0-9]+)$", ("t1", "n1", ":", "n2")),  # file and offset of a binlog
    (r"^(?P<n1>[0-9]+)-(?P<n2>[0-9]+)-(?P<n3>[0-9]+)$", ("n1", "-", "n3", "-", "n2")),  # MariaDB: domain-server-number
    (r"^(?P<t1>[0-9a-fA-F-]{36}:(?:.*:)?)(?P<n1>[0-9]+)$", ("t1", "n1")),  # MySQL: server:number
)
"""Patterns of positions, and the parts of the sortable text: names of groups, of which `n` are numbers, and texts."""
_LETTERS: Final = pa.array(list("abcdefghijklmnopqrstuvwxyz"))


def sortable(cells: Cells) -> Cells:
    """Return positions as texts that sort as the log does; a text that is no position stays as it is."""
    texts = cells.texts
    for pattern, parts in _FORMS:
        at = np.asarray(pc.match_substring_regex(texts, pattern))
        if not at.any():
            continue
        found = pc.extract_regex(texts.filter(pa.array(at)), pattern)
        named = [part for part in parts if part[0] in "nt"]
        values = {name: pc.struct_field(found, name) for name in named}
        values |= {name: _counted(values[name]) for name in named if name[0] == "n"}
        whole = pc.binary_join_element_wise(*[values.get(part, part) for part in parts], "")
        texts = pc.replace_with_mask(texts, pa.array(at), whole)
    return Cells(cells.kinds, texts)


def _counted(digits: pa.Array) -> pa.Array:
    """Return numbers with a letter in front that says how many digits they have, without zeros in front."""
    plain = pc.utf8_ltrim(digits, characters="0")
    size = np.minimum(np.asarray(pc.binary_length(plain)), len(_LETTERS) - 1)
    return pc.binary_join_element_wise(_LETTERS.take(pa.array(size)), plain, "")
