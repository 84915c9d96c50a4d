"""Let every writer write its files, and compare: `python -m tests.files_of_others`.

It writes the table in `docs/files.md`, and with `--record` the files of the suite (`recorded/`). It ends with 1 if a
row is wrong. Environments are made once; Spark's need a JDK and download 600 MB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import merganser as mg

from .compare import WAYS, outcome
from .writers import WRITERS, write

HERE: Final = Path(__file__).resolve().parent
RECORDED: Final = HERE / "recorded"
PAGE: Final = HERE.parents[1] / "docs" / "files.md"
BEGIN: Final = "<!-- files of other writers: python -m tests.files_of_others -->\n"
END: Final = "<!-- end -->\n"
FILE_BYTES_MAX: Final = 24_000


def form_of(name: str) -> str | None:
    """The format of a folder whose file names do not say it."""
    return name.partition("-")[0] if name.endswith("-hive") else None


def outcomes(home: Path, folders: list[str]) -> dict[str, dict[str, str]]:
    """What becomes of each folder, by way."""
    with tempfile.TemporaryDirectory() as place:
        catalog = mg.catalog(f"{place}/w", options={"local.sync": "false"})
        catalog.create_database("db")
        return {
            name: {way: outcome(catalog, f"db.t{i}_{way}", home / name, way, form_of(name)) for way in WAYS}
            for i, name in enumerate(folders)
        }


def in_short(found: dict[str, str]) -> tuple[str, str]:
    """What the table says of `load`, and of `migrate`."""
    words = {way: text.partition(":")[0] for way, text in found.items()}
    migrated = {words[way] for way in WAYS[1:]}
    return words["load"], migrated.pop() if len(migrated) == 1 else ", ".join(f"{way} {words[way]}" for way in WAYS[1:])


def record(home: Path, writer: str, shorts: dict[str, tuple[str, str]]) -> None:
    """Keep the small files of a writer for the suite, and what became of them."""
    target, noted = RECORDED / writer, RECORDED / "outcomes.json"
    shutil.rmtree(target, ignore_errors=True)
    small = {
        name: short
        for name, short in shorts.items()
        if sum(path.stat().st_size for path in (home / name).rglob("*") if path.is_file()) <= FILE_BYTES_MAX
    }
    for name in small:
        shutil.copytree(home / name, target / name)
        shutil.copy(home / f"{name}.arrow", target / f"{name}.arrow")
    known = json.loads(noted.read_text()) if noted.exists() else {}
    noted.write_text(json.dumps(known | {writer: small}, indent=1) + "\n")


def main() -> int:
    """Run the command; 1: a row is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.files_of_others", description=__doc__)
    parser.add_argument("--only", help="one writer")
    parser.add_argument("--record", action="store_true", help="keep the files for the suite")
    parser.add_argument("--out", type=Path, help="where the files are kept; written there unless they are there")
    chosen = parser.parse_args()
    lines, wrong = ["| writer | files | `load` | `migrate` |\n", "|---|---|---|---|\n"], 0
    with tempfile.TemporaryDirectory() as place:
        for kind in WRITERS:
            if chosen.only not in (None, kind.name):
                continue
            home = (chosen.out or Path(place)) / kind.name
            if not (home / "about.json").exists():
                shutil.rmtree(home, ignore_errors=True)
                write(kind, home)
            about = json.loads((home / "about.json").read_text())
            folders = list(about["folders"])
            shorts: dict[str, tuple[str, str]] = {}
            for name, found in outcomes(home, folders).items():
                loaded, migrated = shorts[name] = in_short(found)
                form, said = name.partition("-")[0], about["folders"][name]
                form = {"parquet": "Parquet", "orc": "ORC", "avro": "Avro"}[form]
                lines.append(f"| {about['version']} | {form}: {said} | {loaded} | {migrated} |\n")
                for way, text in found.items():
                    if not text.startswith("equal"):
                        print(f"{kind.name} {name} {way}: {text[:600]}")
                    wrong += text.startswith("WRONG")
            if chosen.record:
                record(home, kind.name, shorts)
    if chosen.only is None and not wrong:
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + "".join(lines) + "\n" + END + rest.partition(END)[2])
    print(f"{len(lines) - 2} folders, {wrong} ways wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
