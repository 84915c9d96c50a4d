"""One case -> passed, failed, skipped, or different on purpose."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import merganser as mg
from tests.conformance.cases import Case, check, load, name_of, wanted
from tests.conformance.cdc_case import run_cdc_case
from tests.conformance.dialects import known
from tests.conformance.differences import CHOSEN
from tests.conformance.door import Door
from tests.conformance.lsm_cases import run_partition_case, run_pick_case
from tests.conformance.outcome import Failure, Result, Skip, not_built, unsupported
from tests.conformance.shard_case import run_shard_case
from tests.conformance.table_case import Verdict, place_of, run_table_case


def run_file(path: Path, door: Door, *, only: str | None = None) -> Iterator[Result]:
    """Yield the result of every case of a file that is asked for.

    Raises:
        BadFileError: the file holds no cases.
    """
    for i, case in enumerate(load(path)):
        if wanted(name_of(case, i), only):
            yield run_case(case, door, file=path.name, index=i)


def run_case(case: Any, door: Door, *, file: str = "", index: int = 0) -> Result:
    """Return how one case ends. Never raises: what goes wrong is part of the result."""
    result = Result(file, name_of(case, index), "passed")
    try:
        with _time_limit():
            verdict = _judged(check(case), door)
    except Skip as skip:
        return _skipped(result, str(skip))
    except mg.errors.UnsupportedError as error:
        return _skipped(result, str(unsupported(error)))
    except Failure as failure:
        verdict = Verdict([str(failure)])
    except Exception as error:
        verdict = Verdict([place_of(error)])
    result.notes = verdict.notes
    if verdict.problems:
        if case.get("legacy"):
            return _skipped(result, "legacy behaviour, which merganser does not have")
        result.status, result.problems = "failed", verdict.problems
        if result.name in CHOSEN:
            result.status, result.reason = "different", CHOSEN[result.name]
    elif verdict.skips:
        _skipped(result, "; ".join(dict.fromkeys(verdict.skips)))
    return result


CASE_SECONDS_MAX: Final = 300
"""A case that takes longer hangs: most likely a reader that waits for what never comes."""


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise TimeoutError inside when a case hangs, and again where it hangs after that. Main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took more than {CASE_SECONDS_MAX} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, CASE_SECONDS_MAX, CASE_SECONDS_MAX / 6)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _skipped(result: Result, reason: str) -> Result:
    result.status, result.reason = "skipped", reason
    return result


def _judged(case: Case, door: Door) -> Verdict:
    return _KINDS[case.get("kind", "table")](case, door)


def _table(case: Case, door: Door) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as folder:
        return run_table_case(case, door, Path(folder))


def _log_system(case: Case, door: Door) -> Verdict:
    if not known("log.system"):
        raise not_built("the log system")
    if "checks" in case:
        raise Skip("its checks need a broker: tests/log/test_cases runs it")
    return _table(case, door)


def _stream_api(case: Case, door: Door) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as folder:
        run_shard_case(case, Path(folder))
    return Verdict()


def _pure(act: Callable[[Case], None]) -> Callable[[Case, Door], Verdict]:
    def judged(case: Case, door: Door) -> Verdict:
        act(case)
        return Verdict()

    return judged


_KINDS: Final[Mapping[str, Callable[[Case, Door], Verdict]]] = {
    "table": _table,
    "log_system": _log_system,
    "stream_api": _stream_api,
    "compaction_pick": _pure(run_pick_case),
    "interval_partition": _pure(run_partition_case),
    "cdc": _pure(run_cdc_case),
    "header": _pure(lambda case: None),
}
