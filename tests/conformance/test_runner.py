"""The runner itself: what passes, what fails and how it reads, what is skipped, and what is bad usage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.handle.reading import ReadVerbs
from merganser.handle.writing import WriteVerbs
from tests.conformance.__main__ import main
from tests.conformance.cases import load
from tests.conformance.column_types import Type, arrow_of, parse, spark_of
from tests.conformance.compare import changelog_difference, rows_difference, same
from tests.conformance.dialects import stream_options, translated
from tests.conformance.door import EmbeddedDoor
from tests.conformance.outcome import Result, Skip
from tests.conformance.run import run_case
from tests.conformance.sql_text import condition
from tests.conformance.steps import change_of, run_step
from tests.conformance.streams import Follower, started
from tests.conformance.values import Logical, Pairs, actual, arrow_table, expected, rows_of

EVERY_TYPE = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-32768, 7],
    "INT": [0, 2147483647],
    "BIGINT": [5000000000, -1],
    "FLOAT": [0.1, "NaN"],
    "DOUBLE": ["Infinity", -0.1],
    "DECIMAL(10,3)": ["1.5", "-1234567.125"],
    "DECIMAL(38, 10)": ["1234567890123456789012345678.0123456789", "0"],
    "CHAR(3)": ["abc", "x"],
    "VARCHAR(5)": ["héllo", ""],
    "STRING": ["", "with 'quotes'"],
    "BINARY(2)": [{"hex": "00ff"}, {"hex": "0102"}],
    "VARBINARY(40)": [{"hex": ""}, {"rbm32": [1, 70000]}],
    "BYTES": [{"hex": "deadbeef"}, {"rbm64": [1, 4294967297]}],
    "DATE": ["2024-05-01", "1969-12-31"],
    "TIME(3)": ["10:00:00.5", "23:59:59.999"],
    "TIMESTAMP(3)": ["2024-05-01T10:00:00.5", "1969-12-31T23:59:59.999"],
    "TIMESTAMP(6)": ["2024-03-10T02:30:00.000001", "0001-01-01T00:00:00"],
    "TIMESTAMP(9)": ["2024-05-01T10:00:00.123456789", "2024-05-01T10:00:00"],
    "TIMESTAMP_LTZ(3)": ["2024-05-01T10:00:00.5Z", "1970-01-01T00:00:00Z"],
    "TIMESTAMP_LTZ(9)": ["2024-03-10T02:30:00.000000001Z", "2024-05-01T10:00:00Z"],
    "ARRAY<STRING>": [["a", None], []],
    "ARRAY<ROW<id INT, at TIMESTAMP(3)>>": [[[1, "2024-05-01T10:00:00"], None], []],
    "MAP<STRING, DECIMAL(5, 2)>": [{"map": [["b", "1.5"], ["a", None]]}, {"map": []}],
    "MULTISET<STRING>": [{"map": [["a", 2]]}, {"map": []}],
    "ROW<a INT, `b` ROW<c BYTES NOT NULL>>": [[1, [{"hex": "00"}]], [None, None]],
}


def case_of(**parts: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "name": "made-up",
        "kind": "table",
        "dialect": "paimon",
        "schema": [["k", "INT"], ["v", "STRING"]],
        "primary_key": ["k"],
        "partition_by": [],
        "options": {},
        "steps": [{"op": "write", "rows": [["+I", 1, "a"], ["+I", 2, "b"]]}],
        "expect_rows": [[2, "b"], [1, "a"]],
    }
    return {name: value for name, value in (whole | parts).items() if value is not ...}


def run(**parts: Any) -> Result:
    return run_case(case_of(**parts), EmbeddedDoor())


def every_type_case() -> dict[str, Any]:
    columns = [[f"c{i}", text] for i, text in enumerate(EVERY_TYPE)]
    rows = [[number, *[values[number] for values in EVERY_TYPE.values()]] for number in range(2)]
    rows.append([2, *[None for _ in EVERY_TYPE]])
    return case_of(
        schema=[["k", "INT"], *columns],
        steps=[{"op": "write", "rows": [["+I", *row] for row in rows]}],
        expect_rows=rows,
    )


# the command


def written(folder: Path, cases: Any, name: str = "cases.json") -> Path:
    path = folder / name
    path.write_text(cases if isinstance(cases, str) else json.dumps(cases), encoding="utf-8")
    return path


def test_a_folder_that_passes_ends_with_0_and_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, [case_of(), case_of(name="other", steps=[{"op": "dance"}])])
    assert main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"{tmp_path / 'cases.json'}: 1 passed, 0 failed, 1 skipped"
    assert "skipped: unknown step op 'dance' (1)" in out
    assert out.splitlines()[-1] == "1 passed, 0 failed, 1 skipped"


def test_a_wrong_expectation_ends_with_1_and_says_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, [case_of(name="wrong", expect_rows=[[1, "a"], [2, "z"]])])
    assert main([str(path)]) == 1
    out = capsys.readouterr().out
    assert "FAILED wrong" in out
    assert 'expected:   [1, "a"] [2, "z"]' in out
    assert 'actual:     [1, "a"] [2, "b"]' in out
    assert 'missing:    [2, "z"]' in out
    assert 'unexpected: [2, "b"]' in out


def test_bad_json_is_a_failure_that_names_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, '[\n  {"name": }\n]', "bad.json")
    written(tmp_path, {"name": "no array"}, "object.json")
    written(tmp_path, [case_of()], "good.json")
    assert main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "not JSON: line 2, column 12" in out
    assert "holds a JSON dict, not an array of cases" in out
    assert out.splitlines()[-1] == "1 passed, 2 failed, 0 skipped"


def test_only_chooses_cases_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, [case_of(name="a-one"), case_of(name="b-two", expect_rows=[])])
    assert main([str(path), "--only", "one"]) == 0
    assert main([str(path), "--only", "a-*", "-v"]) == 0
    assert "  passed a-one" in capsys.readouterr().out
    assert main([str(path), "--only", "three"]) == 2


@pytest.mark.parametrize("arguments", [[], ["/nowhere/at/all"], ["--dance", "."], ["EMPTY"]])
def test_bad_usage_ends_with_2(arguments: list[str], tmp_path: Path) -> None:
    assert main([str(tmp_path) if a == "EMPTY" else a for a in arguments]) == 2


# what is skipped


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"kind": "poem"}, "unknown kind 'poem'"),
        ({"dialect": "klingon"}, "unknown dialect 'klingon'"),
        ({"needs": ["magic"]}, "unknown need 'magic'"),
        ({"expect_smell": 1}, "unknown field 'expect_smell'"),
        ({"steps": [{"op": "write", "rows": [], "why": 1}]}, "unknown field of step 'write' 'why'"),
        ({"steps": [{"op": "write"}]}, "not a case: a 'write' without 'rows'"),
        ({"reads": [{"kind": "guess"}]}, "unknown read kind 'guess'"),
        ({"reads": [{"kind": "batch", "how": 1}]}, "unknown field of read 'batch' 'how'"),
        ({"error_at": "dusk", "expect_error": "x"}, "unknown error_at 'dusk'"),
        ({"schema": ...}, "not a case: it has no schema"),
        ({"schema": [["k", "INT"], "v"]}, "not a case: 'v' is no column"),
        ({"steps": {}}, "not a case: 'steps' is a JSON dict"),
        ({"steps": [{"op": "write", "rows": [["I", 1, "a"]]}]}, "not a case: ['I', 1, 'a'] is no row with a kind"),
        ({"expect_rows": ...}, "nothing is expected"),
    ],
)
def test_what_is_not_understood_is_skipped(parts: dict[str, Any], reason: str) -> None:
    result = run(**parts)
    assert (result.status, result.reason) == ("skipped", reason)


@pytest.mark.parametrize("case", [None, 7, "text", []])
def test_what_is_no_case_is_skipped(case: Any) -> None:
    result = run_case(case, EmbeddedDoor(), index=3)
    assert (result.status, result.name) == ("skipped", "#3")


def test_what_is_not_built_is_skipped_also_where_an_error_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(WriteVerbs, "truncate")
    steps = [{"op": "truncate"}]
    assert run(steps=steps).reason == "not built yet: Table.truncate"

    def refuse(*arguments: Any, **named: Any) -> None:
        raise mg.errors.UnsupportedError("cannot: this version does not. More.", features=["wings", "gills"])

    monkeypatch.setattr(mg.Table, "write", refuse)
    assert run().reason == "not built yet: wings and gills"
    assert run(expect_rows=..., expect_error=".", error_at=0).reason == "not built yet: wings and gills"


def test_one_check_that_is_not_built_skips_a_case_unless_another_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ReadVerbs, "stream")
    reads = [{"kind": "stream", "options": {}, "expect_changelog": []}]
    assert run(reads=reads).reason == "not built yet: Table.stream"
    assert run(reads=reads, expect_rows=[]).status == "failed"


def test_legacy_behaviour_may_be_missing() -> None:
    assert run(legacy=True).status == "passed"
    assert run(legacy=True, expect_rows=[]).status == "skipped"


# errors


BAD_ROW = [{"op": "write", "rows": [["+I", 1, "a"]]}, {"op": "write", "rows": [["+I", None, "b"]]}]


@pytest.mark.parametrize(
    ("at", "status"),
    [(1, "passed"), ("merge", "passed"), ("create_or_use", "passed"), (0, "failed"), ("create", "failed")],
)
def test_an_error_counts_at_the_right_place_only(at: Any, status: str) -> None:
    assert run(steps=BAD_ROW, expect_rows=..., expect_error="null", error_at=at).status == status


def test_an_error_at_creation() -> None:
    parts = {"options": {"bucket": "0"}, "expect_rows": ..., "expect_error": "bucket"}
    assert run(**parts, error_at="create").status == "passed"
    assert run(**parts, error_at=0).status == "failed"
    assert run(options={"bucket": "0"}).problems[0].startswith("create: unexpected InvalidInputError")


def test_an_error_that_does_not_come_is_a_failure() -> None:
    for at in (0, "create", "merge", "create_or_use"):
        result = run(expect_rows=..., expect_error="never", error_at=at)
        assert result.status == "failed"
        assert "an error about 'never' was expected" in result.problems[0]


def test_a_message_that_does_not_match_is_noted() -> None:
    result = run(steps=BAD_ROW, expect_rows=..., expect_error="quux", error_at=1)
    assert result.status == "passed"
    assert result.notes[0].startswith("the message does not match 'quux'")


@pytest.mark.parametrize("error", [KeyError("x"), mg.errors.InvariantError("a bug")])
def test_errors_that_are_no_refusals_fail(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise error

    monkeypatch.setattr(mg.Table, "write", fail)
    result = run(expect_rows=..., expect_error=".", error_at=0)
    assert result.status == "failed"
    assert type(error).__name__ in result.problems[0]


def test_an_expected_error_of_a_read() -> None:
    read = {"kind": "batch", "options": {"scan.snapshot-id": "9"}}
    assert run(reads=[read | {"expect_error": "9"}]).status == "passed"
    assert run(reads=[read | {"expect_rows": []}]).status == "failed"
    fine = {"kind": "batch", "options": {"scan.snapshot-id": "1"}, "expect_error": "9"}
    assert "an error about '9' was expected" in run(reads=[fine]).problems[0]


def test_a_case_that_hangs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*arguments: Any, **named: Any) -> None:
        import time

        time.sleep(60)

    monkeypatch.setattr("tests.conformance.run.CASE_SECONDS_MAX", 1.5)
    monkeypatch.setattr(mg.Table, "write", hang)
    assert "TimeoutError" in run().problems[0]


# values


def test_every_type_goes_in_and_comes_out() -> None:
    result = run_case(every_type_case(), EmbeddedDoor())
    assert result.status == "passed", "\n".join(result.problems)


@pytest.mark.spark
def test_every_type_goes_through_spark(spark: Any) -> None:
    from tests.conformance.spark_door import SparkDoor

    result = run_case(every_type_case(), SparkDoor(spark))
    assert result.status == "passed", "\n".join(result.problems)


@pytest.mark.spark
def test_kinds_order_and_overwrites_go_through_spark(spark: Any) -> None:
    from tests.conformance.spark_door import SparkDoor

    rows = [["+I", "a", 1, 1], ["+I", "a", 1, 2], ["-D", "a", 2, 0], ["+I", "b", 1, 7]]
    case = case_of(
        schema=[["dt", "STRING"], ["k", "INT"], ["v", "INT"]],
        primary_key=["dt", "k"],
        partition_by=["dt"],
        options={"bucket": "2"},
        steps=[
            {"op": "write", "rows": [["+I", "a", 2, 5], ["+I", "c", 1, 1]]},
            {"op": "write", "rows": rows},
            {"op": "overwrite", "dynamic": True, "rows": [["+I", "c", 9, 9]]},
            {"op": "write", "columns": ["k", "dt"], "rows": [["+I", 8, "c"]]},
            {"op": "overwrite", "dynamic": True, "rows": []},
        ],
        expect_rows=[["a", 1, 2], ["b", 1, 7], ["c", 9, 9], ["c", 8, None]],
    )
    result = run_case(case, SparkDoor(spark))
    assert result.status == "passed", "\n".join(result.problems)


@pytest.mark.parametrize("column", range(1, len(EVERY_TYPE) + 1))
def test_a_wrong_value_of_any_type_is_seen(column: int) -> None:
    case = every_type_case()
    kind = case["schema"][column][1]
    case["schema"] = [case["schema"][0], case["schema"][column]]
    case["steps"][0]["rows"] = [[row[0], row[1], row[1 + column]] for row in case["steps"][0]["rows"]]
    rows = [[row[0], row[column]] for row in case["expect_rows"]]
    case["expect_rows"] = [[0, rows[1][1]], rows[1], rows[2]]
    assert run_case(case, EmbeddedDoor()).status == "failed", kind


def test_a_value_that_does_not_fit_is_handed_over_for_merganser_to_refuse() -> None:
    steps = [{"op": "write", "rows": [["+I", 1 << 40, "a"]]}]
    assert run(steps=steps, expect_rows=..., expect_error="k", error_at=0).status == "passed"


def test_numbers_are_compared_by_value() -> None:
    decimal = parse("DECIMAL(5,2)")
    assert same(actual(pa.scalar(Decimal("1.00"), arrow_of(decimal)), decimal), expected("1.0", decimal))
    assert same(1.0 + 1e-12, 1.0)
    assert not same(1.0 + 1e-8, 1.0)
    assert same(float("nan"), expected("NaN", Type("DOUBLE")))
    assert not same(float("inf"), expected("-Infinity", Type("DOUBLE")))
    assert not same(True, 1)
    assert not same("1", 1)
    assert not same(b"a", "a")
    assert not same(None, 0)


def test_maps_have_no_order_and_arrays_have_unless_the_case_says_so() -> None:
    assert same(Pairs(((1, "a"), (2, "b"))), Pairs(((2, "b"), (1, "a"))))
    assert not same(Pairs(((1, "a"),)), Pairs(((1, "a"), (1, "a"))))
    assert not same([1, 2], [2, 1])
    assert same([1, 2, 2], [2, 1, 2], unordered=True)
    assert not same([1, 2, 2], [2, 1, 1], unordered=True)
    assert not same([[1, 2]], [[2, 1]], unordered=True)


def test_bitmaps_are_compared_by_members() -> None:
    for form in ("rbm32", "rbm64"):
        stored = Logical(form, (1, 2, 3)).serialized()
        assert same(stored, Logical(form, (3, 2, 1)))
        assert not same(stored, Logical(form, (1, 2)))
        assert not same(None, Logical(form, ()))


def test_sketches_are_compared_by_their_estimate() -> None:
    pytest.importorskip("datasketches")
    for form in ("hll_sketch", "theta_sketch"):
        stored = Logical(form, ("a", "b", "c")).serialized()
        assert same(stored, Logical(form, ("x", "y", "z")))
        assert not same(stored, Logical(form, ("a", "b")))


def test_moments_lose_digits_only_through_spark() -> None:
    kind = parse("TIMESTAMP(9)")
    assert expected("2024-05-01T10:00:00.123456789", kind) == "2024-05-01T10:00:00.123456789"
    assert expected("2024-05-01T10:00:00.123456789", kind, micros=True) == "2024-05-01T10:00:00.123456"


def test_rows_of_arrow_are_plain() -> None:
    columns = [("m", parse("MAP<INT, ROW<t TIME(3)>>")), ("d", parse("DECIMAL(4,1)"))]
    table = arrow_table([[{"map": [[1, ["10:00:00.250"]]]}, "1.5"], [None, None]], columns)
    found = rows_of(table, columns)
    assert found[0][0] == Pairs(((1, ["10:00:00.25"]),))
    assert str(found[0][1]) == "1.5"
    assert found[1] == [None, None]


@pytest.mark.parametrize(
    ("text", "spark"),
    [
        ("INT NOT NULL", "int"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "timestamp"),
        ("timestamp_ltz(9) not null", "timestamp"),
        ("ROW<`a b` ARRAY<INT NOT NULL> NOT NULL 'note', c MAP<STRING, DECIMAL(5, 2)>> NOT NULL",
         "struct<`a b`: array<int>, `c`: map<string, decimal(5, 2)>>"),
    ],
)  # fmt: skip
def test_type_texts(text: str, spark: str) -> None:
    assert spark_of(parse(text), time=True) == spark


@pytest.mark.parametrize("text", ["", "FANCY", "ARRAY<INT", "MAP<INT>", "ROW<a INT", "DECIMAL(x)", "INT STRING"])
def test_unknown_types_are_skips(text: str) -> None:
    with pytest.raises(Skip, match="unknown type"):
        parse(text)


# comparing rows and changelogs


def test_rows_are_a_multiset_unless_ordered() -> None:
    assert rows_difference([[1], [2], [2]], [[2], [1], [2]]) is None
    assert rows_difference([[1], [2]], [[2], [1], [2]]) is not None
    assert rows_difference([[1], [2]], [[2], [1]], ordered=True) is not None
    assert rows_difference([[1], [2]], [[2]], subset=True) is None
    assert rows_difference([[1], [2]], [[3]], subset=True) is not None
    assert rows_difference([[1, 2]], [[1]]) is not None


UPDATE = [["-U", 1, "a"], ["+U", 1, "b"]]


@pytest.mark.parametrize(
    ("actual_groups", "equal"),
    [
        ([[*UPDATE, ["+I", 2, "x"]]], True),
        ([[["+I", 2, "x"], *UPDATE]], True),
        ([[UPDATE[0], ["+I", 2, "x"], UPDATE[1]]], True),
        ([[UPDATE[1], UPDATE[0], ["+I", 2, "x"]]], False),
        ([[*UPDATE, ["+U", 2, "x"]]], False),
        ([[*UPDATE]], False),
        ([[*UPDATE, ["+I", 2, "x"], ["+I", 3, "x"]]], False),
        ([UPDATE, [["+I", 2, "x"]]], False),
        ([], False),
    ],
)
def test_a_changelog_is_compared_key_by_key_in_order(actual_groups: Any, equal: bool) -> None:
    wanted = [[*UPDATE, ["+I", 2, "x"]]]
    assert (changelog_difference(actual_groups, wanted, key=[1]) is None) == equal


def test_without_a_key_the_row_is_the_key() -> None:
    twice = [[["+I", 1], ["+I", 1], ["-D", 2]]]
    assert changelog_difference([[["-D", 2], ["+I", 1], ["+I", 1]]], twice, key=None) is None
    assert changelog_difference([[["-D", 2], ["+I", 1]]], twice, key=None) is not None


# streams, with a table that is only made up


class Streamed:
    """A table whose stream hands out plans: those that are there, and those that are added while it is followed."""

    def __init__(self, *plans: list[list[Any]]) -> None:
        self.plans = list(plans)
        self.asked: list[dict[str, Any]] = []

    def stream(self, start: str = "latest-full", follow: bool = True, **options: Any) -> Iterator[pa.Table]:
        self.asked.append({"start": start, "follow": follow} | options)
        return self._plans(follow)

    def _plans(self, follow: bool) -> Iterator[pa.Table]:
        import time

        at = 0
        while True:
            while at < len(self.plans):
                rows = self.plans[at]
                at += 1
                yield pa.table({"k": [row[1] for row in rows], "_row_kind": [row[0] for row in rows]})
            if not follow:
                return
            time.sleep(0.01)


def test_the_options_of_a_stream_become_arguments() -> None:
    table: Any = Streamed([["+I", 1]])
    options = {"scan.mode": "from-snapshot", "scan.snapshot-id": "2", "consumer-id": "c"}
    assert len(list(started(table, options, follow=False))) == 1
    list(started(table, {}, follow=False))
    assert table.asked == [
        {"start": "from-snapshot", "follow": False, "consumer": "c", "scan.snapshot-id": "2"},
        {"start": "latest-full", "follow": False},
    ]


def test_a_follower_sees_what_comes_later_and_can_be_stopped() -> None:
    table: Any = Streamed([["+I", 1]])
    follower = Follower(lambda: started(table, {}, follow=True))
    table.plans.append([["+I", 2]])
    assert [plan.column("k").to_pylist() for plan in follower.finished(2)] == [[1], [2]]
    assert not follower._thread.is_alive()
    assert table.asked[0]["continuous.discovery-interval"] == "10 ms"


def test_the_error_of_a_follower_is_raised() -> None:
    def broken() -> Iterator[pa.Table]:
        raise mg.errors.ExpiredError("gone")
        yield

    with pytest.raises(mg.errors.ExpiredError):
        Follower(broken).finished(1)


def test_a_stream_read_of_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Streamed()

    def stream(self: mg.Table, follow: bool = True, **options: Any) -> Iterator[pa.Table]:
        plans = []
        for snapshot in self.snapshots():
            found = self.read(snapshot=snapshot.id).to_arrow()
            plans.append(found.append_column("_row_kind", pa.array(["+I"] * found.num_rows)))
        return iter(plans)

    monkeypatch.setattr(mg.Table, "stream", stream, raising=False)
    assert source.asked == []
    steps = [{"op": "write", "rows": [["+I", 1, "a"]]}, {"op": "write", "rows": [["+I", 2, "b"]]}]
    plans = [[["+I", 1, "a"]], [["+I", 2, "b"], ["+I", 1, "a"]]]
    right = {"kind": "stream", "options": {}, "expect_changelog": plans}
    early = {"kind": "stream", "options": {}, "after_step": 0, "until_step": 0, "expect_changelog": plans[:1]}
    wrong = {"kind": "stream", "options": {}, "expect_changelog": plans[:1]}
    parts = {"steps": steps, "expect_rows": [[1, "a"], [2, "b"]]}
    assert run(**parts, reads=[right, early]).status == "passed"
    assert "1 groups of records were expected, 2 came" in run(**parts, reads=[wrong]).problems[0]


# steps that are not built yet: what is called, and with what


class Recorder:
    """Records calls, of itself and of whatever it hands out."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Recorder:
            self.calls.append((name, *arguments, named))
            return self

        return call


def recorded(step: dict[str, Any]) -> list[tuple[Any, ...]]:
    table = Recorder()
    columns = [("k", parse("INT")), ("v", parse("STRING")), ("d", parse("DATE"))]
    world: Any = SimpleNamespace(
        table=lambda: table, columns=lambda names=None: columns, clock=SimpleNamespace(set=lambda moment: None),
        door=EmbeddedDoor(), spec=dict,
    )  # fmt: skip
    run_step(world, step)
    return table.calls


def test_delete_and_update_are_sql() -> None:
    assert recorded({"op": "delete", "where": {"v": "it's", "d": None}}) == [
        ("delete", "v = 'it''s' AND d IS NULL", {})
    ]
    step = {"op": "update", "set": {"v": None, "d": "2024-05-01"}, "where": {}}
    assert recorded(step) == [("update", "TRUE", {"v": "NULL", "d": "DATE '2024-05-01'"}, {})]
    assert condition({"a b": True}, {}, prefix="source.") == "source.`a b` = TRUE"


def test_merge_tries_its_clauses_in_order() -> None:
    calls = recorded(
        {
            "op": "merge",
            "on": ["k"],
            "source_columns": ["k", "v", "extra"],
            "source": [[1, "a", 5]],
            "when_matched": [{"if": {"v": "del"}, "then": "delete"}, {"then": "update", "set": ["v"]}],
            "when_not_matched": [{"then": "insert"}],
        }
    )
    assert calls[0][0] == "merge"
    assert calls[0][1].to_pylist() == [{"k": 1, "v": "a", "extra": 5}]
    assert calls[0][2] == {"on": "target.k = source.k"}
    assert calls[1:] == [
        ("when_matched_delete", {"condition": "source.v = 'del'"}),
        ("when_matched_update", {"v": "source.v"}, {"condition": None}),
        ("when_not_matched_insert", {"k": "source.k", "v": "source.v"}, {"condition": None}),
        ("execute", {}),
    ]


def test_compaction_is_of_every_bucket_or_of_one_partition() -> None:
    assert recorded({"op": "compact", "full": True}) == [("compact", {"full": True, "partitions": None})]
    assert recorded({"op": "compact", "full": True, "partition": {"d": "x"}})[0][1]["partitions"] == [{"d": "x"}]


@pytest.mark.parametrize(
    ("change", "call"),
    [
        ({"type": "add_column", "name": "n", "data_type": "INT"}, ("add_column", "n", "INT", {})),
        ({"type": "add_column", "name": "n", "data_type": "INT", "position": "first"},
         ("add_column", "n", "INT", {"first": True})),
        ({"type": "add_column", "name": "n", "data_type": "INT", "after": "k"},
         ("add_column", "n", "INT", {"after": "k"})),
        ({"type": "add_column", "name": "n", "data_type": "INT", "position": {"after": "k"}},
         ("add_column", "n", "INT", {"after": "k"})),
        ({"type": "drop_column", "name": "a.b"}, ("drop_column", "a.b", {})),
        ({"type": "rename_column", "from": "a", "to": "b"}, ("rename_column", "a", "b", {})),
        ({"type": "modify_type", "name": "a", "data_type": "BIGINT"}, ("retype_column", "a", "BIGINT", {})),
        ({"type": "set_option", "key": "a", "value": "b"}, ("set_option", "a", "b", {})),
        ({"type": "reset_option", "key": "a"}, ("remove_option", "a", {})),
        ({"type": "set_nullable", "name": "a", "nullable": False}, ("set_nullable", "a", False, {})),
        ({"type": "move_column", "name": "a", "after": "b"}, ("move_column", "a", {"after": "b"})),
        ({"type": "move_column", "name": "a"}, ("move_column", "a", {"first": True})),
        ({"type": "set_default", "name": "a", "value": "1"}, ("set_default", "a", "1", {})),
    ],
)  # fmt: skip
def test_schema_changes(change: dict[str, Any], call: tuple[Any, ...]) -> None:
    changes = Recorder()
    change_of(changes, change)
    assert changes.calls == [call]


@pytest.mark.parametrize("change", [{"type": "explode"}, {"type": "drop_column", "name": "a", "if": 1}, {"type": None}])
def test_unknown_schema_changes_are_skips(change: dict[str, Any]) -> None:
    with pytest.raises(Skip):
        change_of(Recorder(), change)


# dialects


def test_tables_with_a_key_have_the_buckets_that_their_system_gives_them() -> None:
    assert translated(case_of()).options == {}
    assert translated(case_of(dialect="tablestore-0.3")).options["bucket"] == "1"
    assert translated(case_of(options={"bucket": "4"})).options == {"bucket": "4"}
    assert translated(case_of(primary_key=[])).options == {}
    assert translated(case_of(configuration={"table-storage.bucket": "10"})).options == {}


def test_tables_of_table_store_without_a_key_count_rows() -> None:
    counting = case_of(dialect="tablestore-0.3", primary_key=[])
    assert translated(counting).options == {"write-mode": "change-log", "bucket": "1"}
    inserts = counting | {"options": {"write-mode": "append-only"}}
    assert translated(inserts).options == {"write-mode": "append-only"}


def test_options_of_fluss() -> None:
    case = case_of(dialect="fluss")
    options = {
        "table.merge-engine": "aggregation",
        "fields.v.agg": "string_agg",
        "fields.v.listagg.delimiter": "|",
        "table.delete.behavior": "allow",
        "bucket.num": "4",
    }
    found = translated(case | {"options": options}).options
    found.pop("changelog-producer", None)
    assert found == {key: value for key, value in options.items() if key != "bucket.num"} | {"bucket": "4"}
    with pytest.raises(Skip, match=r"table\.strange"):
        translated(case | {"options": {"table.strange": "1"}})
    assert stream_options(case, {"scan.startup.mode": "earliest"}) == {
        "scan.mode": "from-snapshot",
        "scan.snapshot-id": "1",
    }


def test_a_case_may_say_what_time_it_is() -> None:
    steps = [
        {"op": "write", "rows": [["+I", 1, "a"]], "commit_time": 1000},
        {"op": "write", "rows": [["+I", 2, "b"]], "commit_time": 2000},
    ]
    read = {"kind": "batch", "options": {"scan.timestamp-millis": "1999"}, "expect_rows": [[1, "a"]]}
    assert run(steps=steps, reads=[read], needs=["commit-time"]).status == "passed"


def test_keys_of_one_group_must_share_a_bucket() -> None:
    rows = [["+I", i, "a"] for i in range(50)]
    parts = {"options": {"bucket": "8"}, "steps": [{"op": "write", "rows": rows}], "expect_rows": ...}
    assert run(**parts, bucket_count=8).status == "passed"
    assert run(**parts, bucket_count=4).status == "failed"
    assert run(**parts, same_bucket=[[[1], [1]]]).status == "passed"
    assert "several buckets" in run(**parts, same_bucket=[[[i] for i in range(50)]]).problems[0]
    assert "is in no data file" in run(**parts, same_bucket=[[[99], [1]]]).problems[0]


def test_the_vectors_are_all_understood() -> None:
    """Whatever is skipped in them is skipped for what merganser has, not for what the runner knows."""
    from tests.conformance.cases import check

    for path in sorted((Path(__file__).parents[1] / "vectors").glob("*.json")):
        if path.stem == "sql":  # its cases have another shape
            continue
        for case in load(path):
            check(case)
