"""DuckLake in the campaign: DuckDB with the extension that PyPI has, and a catalog in a DuckDB file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import duckdb_extension_ducklake
import pyarrow as pa

from . import rows
from .store import Store, newest

_KEYS = " AND ".join(f"t.{name} = s.{name}" for name in rows.KEY)


class DuckLake(Store):
    """A round is a transaction: MERGE of the rows that are written, and DELETE."""

    def __init__(self, home: Path, settings: dict[str, object]) -> None:
        super().__init__(home, settings)
        home.mkdir(parents=True)
        extension = next(Path(duckdb_extension_ducklake.__file__).parent.rglob("*.duckdb_extension"))
        self.lake = duckdb.connect()
        self.lake.execute(f"LOAD '{extension}'")
        self.lake.execute(f"ATTACH 'ducklake:{home / 'catalog.ducklake'}' AS lake (DATA_PATH '{home / 'data'}')")

    def close(self) -> None:
        self.lake.close()

    def create(self, table: str) -> None:
        empty = rows.SCHEMA.empty_table()
        self._run(f"CREATE TABLE lake.{table} AS SELECT * FROM given", empty)

    def append(self, table: str, new: pa.Table) -> None:
        self._run(f"INSERT INTO lake.{table} FROM given", new)

    def change(self, table: str, written: pa.Table, deleted: pa.Table) -> None:
        self.lake.execute("BEGIN")
        self._run(
            f"MERGE INTO lake.{table} t USING given s ON {_KEYS} WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT",
            written,
        )
        self._run(f"DELETE FROM lake.{table} t USING given s WHERE {_KEYS}", deleted)
        self.lake.execute("COMMIT")

    def read(self, table: str, key_range: Sequence[int] | None = None) -> pa.Table:
        where = f" WHERE order_id BETWEEN {key_range[0]} AND {key_range[1]}" if key_range else ""
        return self.lake.execute(f"FROM lake.{table}{where}").to_arrow_table()

    def look_up(self, table: str, keys: Sequence[Sequence[int]]) -> pa.Table:
        statement = f"FROM lake.{table} WHERE order_id = ? AND line = ?"
        return pa.concat_tables([self.lake.execute(statement, list(key)).to_arrow_table() for key in keys])

    def position(self, table: str) -> int:
        found = self.lake.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchone()
        return int(found[0]) if found else 0

    def feed(self, source: str, target: str, since: int) -> None:
        asked = f"FROM ducklake_table_changes('lake', 'main', '{source}', {since + 1}, {self.position(source)})"
        changes = self.lake.execute(f"{asked} WHERE change_type <> 'update_preimage'").to_arrow_table()
        self.change(target, *newest(changes, "snapshot_id", "change_type", ["delete"]))

    def compact(self, table: str) -> None:
        self.lake.execute("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)").fetchall()
        self.lake.execute("CALL ducklake_merge_adjacent_files('lake')").fetchall()

    def path(self, table: str) -> Path:
        return self.home / "data" / "main" / table

    def _run(self, statement: str, given: pa.Table) -> None:
        self.lake.register("given", given)
        self.lake.execute(statement)
        self.lake.unregister("given")


STORE = DuckLake
