"""All cases of `tests/vectors` embedded, and a fixed slice of them through Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import load, name_of
from tests.conformance.cdc_case import judged
from tests.conformance.differences import CHOSEN
from tests.conformance.door import EmbeddedDoor
from tests.conformance.report import counts, file_report, skip_reasons
from tests.conformance.run import run_case, run_file

VECTORS = Path(__file__).parents[1] / "vectors"
SKIPPED_MAX = {
    "aggregation": 0,
    "buckets_partitions_dml": 0,
    "cdc_formats": 0,
    "changelog": 0,
    "compaction": 0,
    "deduplicate": 0,
    "first_row": 0,
    "fluss": 0,
    "log_system": 3,
    "maintenance": 0,
    "no_primary_key": 0,
    "partial_update": 0,
    "reads": 0,
    "scenarios": 0,
    "schema_evolution": 0,
    "seed_examples": 2,
    "sequence": 0,
    "sequence_groups": 0,
    "tablestore_stream": 0,
    "validation_errors": 0,
}
"""Most cases of a file that may be skipped. Lower a number when what they ask for is built; never raise one."""
SPARK_SLICE: dict[str, list[str] | None] = {
    "deduplicate": None,
    "no_primary_key": ["append-", "vc-delete-removes"],
    "buckets_partitions_dml": ["ow-dynamic", "ow-static", "xp-deduplicate", "xp-aggregation", "truncate"],
    "aggregation": [
        "agg-sum-all", "agg-sum-int-overflow", "agg-max-min-numeric", "agg-max-timestamp", "agg-max-retract",
        "agg-merge-map-with", "agg-nested-update-keyed", "agg-rbm32",
    ],
    "partial_update": ["pu-partial-columns", "pu-remove-then"],
    "sequence": ["seq-late-smaller", "seq-timestamp", "rowkind-field-drives"],
    "sequence_groups": ["sg-two-groups", "sg-listagg", "sg-remove-record-on-sequence-group-older"],
    "first_row": ["fr-first-wins-inside"],
    "changelog": ["cl-input-passes", "cl-lookup-insert", "cl-fc-update"],
    "schema_evolution": [
        "se-add-column-first", "se-rename", "se-drop-then", "se-int-to", "se-partial-update", "se-aggregation",
        "se-default-value-fills",
    ],
    "reads": ["rd-time-travel", "rd-batch-from-timestamp", "rd-incremental"],
    "scenarios": None,
}  # fmt: skip
"""File -> beginnings of the names of the cases that also go through Spark; None: all."""


def files() -> list[str]:
    return sorted(path.stem for path in VECTORS.glob("*.json") if path.stem != "sql")  # its cases have another shape


def spark_cases() -> Iterator[Any]:
    for file, beginnings in SPARK_SLICE.items():
        for case in load(VECTORS / f"{file}.json"):
            if beginnings is None or case["name"].startswith(tuple(beginnings)):
                yield pytest.param(case, id=case["name"])


def test_every_chosen_difference_names_a_case() -> None:
    assert set(CHOSEN) <= {
        name_of(case, i) for file in files() for i, case in enumerate(load(VECTORS / f"{file}.json"))
    }


def test_every_file_has_a_number_of_skips() -> None:
    assert sorted(SKIPPED_MAX) == files()


def test_the_slice_names_cases_that_are_there() -> None:
    names = {file: [case["name"] for case in load(VECTORS / f"{file}.json")] for file in SPARK_SLICE}
    asked = [(file, start) for file, starts in SPARK_SLICE.items() for start in starts or [""]]
    assert [(file, start) for file, start in asked if not any(name.startswith(start) for name in names[file])] == []


@pytest.mark.parametrize("file", files())
def test_cases_of_a_file_embedded(file: str) -> None:
    path = VECTORS / f"{file}.json"
    results = list(run_file(path, EmbeddedDoor()))
    found = counts(results)
    assert found["failed"] == 0, "\n" + file_report(path.name, results, verbose=False)
    chosen = {name_of(case, i) for i, case in enumerate(load(path))} & set(CHOSEN)
    assert {result.name for result in results if result.status == "different"} == chosen, "remove it from `CHOSEN`"
    assert found["skipped"] <= SKIPPED_MAX[file], "\n" + "\n".join(
        f"{number} {reason}" for reason, number in skip_reasons(results).most_common()
    )


@pytest.mark.campaign(1 / 14)
@pytest.mark.spark
@pytest.mark.parametrize("case", list(spark_cases()))
def test_a_case_through_spark(case: dict[str, Any], spark: Any) -> None:
    from tests.conformance.spark_door import SparkDoor

    result = run_case(case, SparkDoor(spark))
    if result.status == "skipped":
        pytest.skip(result.reason)
    assert result.status in ("passed", "different"), "\n" + "\n".join(result.problems)


def _streamed(case: Any) -> bool:
    reads = case.get("reads", [])
    own = case.get("dialect") != "fluss" and (case.get("expect_changelog") or case.get("expect_stream"))
    return bool(
        own or any(read["kind"] == "stream" and "after_step" not in read and "until_step" not in read for read in reads)
    )


@pytest.mark.spark
def test_a_sample_of_cases_streams_through_spark(spark: Any) -> None:
    """`python -m tests.conformance --spark-streams PATH...` runs all cases, and writes their rows by streams, too."""
    from tests.conformance.spark_door import SparkStreamDoor

    cases = [case for file in files() for case in load(VECTORS / f"{file}.json") if _streamed(case)]
    door = SparkStreamDoor(spark, writes=False)
    results = [run_case(case, door) for case in random.Random(17).sample(cases, 2)]
    assert {result.name: result.problems for result in results if result.status == "failed"} == {}
    assert [result.status for result in results] == ["passed"] * 2


@pytest.mark.spark
def test_cases_of_change_records_through_spark(spark: Any, tmp_path: Path) -> None:
    from tests.conformance.cdc_spark import cases_for_spark, found_through_spark

    cases = [
        case for case in load(VECTORS / "cdc_formats.json") if case["kind"] == "cdc" and case["name"] not in CHOSEN
    ]
    merged = cases_for_spark(cases)
    assert len(merged) > 30
    found = found_through_spark(merged, spark, tmp_path)
    problems = {case["name"]: judged(case, one, micros=True) for case, one in zip(merged, found, strict=True)}
    assert {name: said for name, said in problems.items() if said} == {}
