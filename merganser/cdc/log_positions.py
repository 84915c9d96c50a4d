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
from merganser.parsing.json_scan import NULL, Bools

LOG_POSITIONS: Final = ("position", "gtid")
"""Metadata that this module makes sortable."""
_HEX: Final = "[0-9a-fA-F]{4,}(?::[0-9a-fA-F]{4,})+"
_FORMS: Final = (
    (r"^(?P<n1>[0-9]+)$", ("n1",)),  # an LSN
    # file and offset of a binlog, or of a commit log
    (r"^(?P<t1>[^:/]*[^0-9:/])(?P<n1>[0-9]+)(?P<t2>(?:\.[^0-9:/]*)?):(?P<n2>[0-9]+)$", ("t1", "n1", "t2", ":", "n2")),
    (r"^(?P<n1>[0-9]+)-(?P<n2>[0-9]+)-(?P<n3>[0-9]+)$", ("n1", "-", "n3", "-", "n2")),  # MariaDB: domain-server-number
    (r"^(?P<t1>[0-9a-fA-F-]{36}:(?:.*:)?)(?P<n1>[0-9]+)$", ("t1", "n1")),  # MySQL: server:number
    (r"^(?P<n1>[0-9]+)/(?P<n2>[0-9]+)$", ("n1", "/", "n2")),  # numbers of a commit and of a change in it
    (r"^(?P<n1>[0-9]+)/(?P<n2>[0-9]+)/(?P<t1>[^/]+)$", ("n1", "/", "n2", "/", "t1")),  # Oracle: a redo record
    (r"^(?P<n1>[0-9]+)/(?P<n2>[0-9]+)/(?P<t1>[^/]+)/(?P<n3>[0-9]+)$", ("n1", "/", "n2", "/", "t1", "/", "n3")),
    (rf"^(?P<t1>{_HEX}(?:/{_HEX})?)$", ("t1",)),  # SQL Server, Db2: they have one width
    (rf"^(?P<t1>{_HEX}/{_HEX})/(?P<n1>[0-9]+)$", ("t1", "/", "n1")),
)
"""Patterns of positions, and the parts of the sortable text: names of groups, of which `n` are numbers, and texts."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def sortable(cells: Cells) -> tuple[Cells, Bools]:
    """Return positions as texts that sort as the log does, and which cells are texts whose order is not known."""
    texts, open_ = cells.texts, cells.kinds > NULL
    for pattern, parts in _FORMS:
        at = np.asarray(pc.match_substring_regex(cells.texts, pattern)) & open_
        if not at.any():
            continue
        open_ = open_ & ~at
        found = pc.extract_regex(texts.filter(pa.array(at)), pattern)
        named = [part for part in parts if part[0] in "nt"]
        values = {name: pc.struct_field(found, name) for name in named}
        values |= {name: _counted(values[name]) for name in named if name[0] == "n"}
        whole = pc.binary_join_element_wise(*[values.get(part, part) for part in parts], "")
        texts = pc.replace_with_mask(texts, pa.array(at), whole)
    return Cells(cells.kinds, texts), open_


def _counted(digits: pa.Array) -> pa.Array:
    """Return numbers with a letter in front that says how many digits they have, without zeros in front."""
    plain = pc.utf8_ltrim(digits, characters="0")
    size = np.minimum(np.asarray(pc.binary_length(plain)), len(_LETTERS) - 1)
    return pc.binary_join_element_wise(pa.array(list(_LETTERS)).take(pa.array(size)), plain, "")
