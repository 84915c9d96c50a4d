"""What a person reads: per file the counts, the failures in full, the reasons of skips; at the end one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.conformance.outcome import Result


def counts(results: Iterable[Result]) -> Counter[str]:
    """Return how many results there are of each status."""
    return Counter(result.status for result in results)


def count_line(results: Iterable[Result]) -> str:
    """Return `N passed, N failed, N skipped`, and the number of chosen differences if there are some."""
    found = counts(results)
    line = ", ".join(f"{found[status]} {status}" for status in ("passed", "failed", "skipped"))
    return f"{line}, {found['different']} different by choice" if found["different"] else line


def file_report(name: str, results: Sequence[Result], *, verbose: bool) -> str:
    """Return the report of one file."""
    lines = [f"{name}: {count_line(results)}"]
    for result in results:
        if result.status == "failed":
            lines.append(f"  FAILED {result.name}")
            lines += [_indented(problem, "    ") for problem in result.problems]
        elif result.status == "different":
            lines.append(f"  different by choice: {result.name}: {result.reason}")
        elif verbose:
            reason = f": {result.reason}" if result.reason else ""
            lines.append(f"  {result.status} {result.name}{reason}")
        if verbose:
            lines += [_indented(f"note: {note}", "    ") for note in result.notes]
    lines += [f"  skipped: {reason} ({number})" for reason, number in skip_reasons(results).most_common()]
    return "\n".join(lines)


def skip_reasons(results: Iterable[Result]) -> Counter[str]:
    """Return the reasons of skips, and how many cases each has."""
    return Counter(result.reason for result in results if result.status == "skipped")


def _indented(text: str, margin: str) -> str:
    return "\n".join(margin + line for line in text.splitlines())
