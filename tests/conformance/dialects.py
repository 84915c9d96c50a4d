"""Options of the products that cases come from -> ours (semantics 2.6, 3.2, 9, 13).

An option that merganser knows under its own name goes in as it is written, so a dialect that is built in one day is
used as such from then on. What has no counterpart is a skip that names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.conformance.cases import Case
from tests.conformance.outcome import Skip, not_built

_FLUSS_KEYS: Final = {"bucket.num": "bucket", "bucket.key": "bucket-key"}
_FLUSS_ENGINE_KEYS: Final = (
    "table.merge-engine",
    "table.merge-engine.versioned.ver-column",
    "table.delete.behavior",
)
"""Options of Fluss that merganser takes as they are spelled."""
_START_MODES: Final = {
    "full": {"scan.mode": "latest-full"},
    "earliest": {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"},
    "latest": {"scan.mode": "latest"},
    "timestamp": {"scan.mode": "from-timestamp"},
}


@dataclass
class Translation:
    """The options of a case as ours.

    Attributes:
        options: to create the table with.
        per_record: whether the table logs every record on its own, as Fluss does.
    """

    options: dict[str, str]
    per_record: bool = False


def translated(case: Case) -> Translation:
    """Return the options that a case's table is created with.

    Raises:
        Skip: an option has no counterpart.
    """
    given = dict(case.get("options", {}))
    match case.get("dialect", "paimon"):
        case "fluss":
            found = _from_fluss(case, given)
        case "tablestore-0.3":
            found = Translation(_from_table_store(case, given))
        case _:
            found = Translation(given)
    other = case.get("dialect", "paimon") != "paimon"
    if other and "bucket" not in found.options and case.get("primary_key") and not case.get("configuration"):
        found.options["bucket"] = "1"  # the default of these; Paimon adds buckets as keys arrive
    return found


def stream_options(case: Case, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a streaming read as ours."""
    out: dict[str, Any] = {}
    for key, value in options.items():
        if key == "scan.startup.mode" and not known(key):
            if value not in _START_MODES:
                raise Skip(f"unknown scan.startup.mode '{value}'")
            out |= _START_MODES[value]
        elif key == "scan.startup.timestamp" and not known(key):
            out["scan.timestamp-millis" if str(value).isdigit() else "scan.timestamp"] = value
        else:
            out[key] = value
    return out


def known(key: str) -> bool:
    """Return whether merganser has an option of this name."""
    return _option(key) is not None


def _option(key: str) -> Any:
    from merganser.options.registry import find_option

    return find_option(key)


def _choices(key: str) -> tuple[str, ...]:
    option = _option(key)
    return () if option is None else tuple(getattr(option.type, "choices", ()))


def _from_table_store(case: Case, options: dict[str, str]) -> dict[str, str]:
    """Of Table Store 0.3: a table without a key counts equal rows unless it is append-only."""
    if not case.get("primary_key"):
        options.setdefault("write-mode", "change-log")
        if options["write-mode"] == "change-log":
            options.setdefault("bucket", "1")
    return options


def _from_fluss(case: Case, given: dict[str, str]) -> Translation:
    found = Translation({})
    for key, value in given.items():
        if known(key):
            found.options[key] = value
        elif key in _FLUSS_KEYS:
            found.options[_FLUSS_KEYS[key]] = value
        elif key in _FLUSS_ENGINE_KEYS or (key.startswith("fields.") and key.endswith((".agg", ".listagg.delimiter"))):
            found.options[key] = value
        elif key == "table.changelog.image" and value.lower() == "full":
            continue
        else:
            raise not_built(f"Fluss option {key} = {value}")
    if case.get("primary_key"):
        _log_every_record(found)
    return found


def _log_every_record(found: Translation) -> None:
    """Let the table log every record on its own, where merganser has such a changelog producer."""
    producer = next((name for name in _choices("changelog-producer") if "record" in name), None)
    if producer is not None:
        found.options.setdefault("changelog-producer", producer)
        found.per_record = True
    elif known("table.changelog.image"):
        found.per_record = True
