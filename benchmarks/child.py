"""Run one action in this fresh process and print what it cost as one line of JSON.

    echo '{"argument": ...}' | python -m benchmarks.child MODULE FUNCTION

The module is imported and warmed up (`warm.py`), `FUNCTION(**arguments)` prepares (input in memory, table opened) and
returns the action itself, a function without arguments that returns the number of rows or a dict of measurements of
its own, which then go before those taken here. Only the action is measured:

* `seconds`: wall time. `cpu_seconds`: of this process with all its threads, and of its children that have ended.
* `peak_bytes`: the largest resident memory during the action, what was prepared included; `held_bytes`: the resident
  memory when it began. On Linux the kernel's high-water mark is set back before the action; elsewhere the peak is that
  of the whole life of the process.

The peers run this under their own interpreter, so it uses the standard library only.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from .warm import warm_up

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def measured(module: str, function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What the action of `module.function(**arguments)` cost."""
    client = importlib.import_module(module)
    warm_up(client)
    action = getattr(client, function)(**arguments)
    gc.collect()
    held = _memory("VmRSS")
    _forget_peak()
    cpu, wall = _cpu_seconds(), time.perf_counter()
    outcome = action()
    seconds = time.perf_counter() - wall
    cost = {
        "seconds": seconds,
        "cpu_seconds": _cpu_seconds() - cpu,
        "peak_bytes": _memory("VmHWM"),
        "held_bytes": held,
    }
    return {**cost, **(outcome if isinstance(outcome, dict) else {"rows": outcome})}


def _cpu_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _forget_peak() -> None:
    try:
        _CLEAR.write_text("5")
    except OSError:
        return


def _memory(name: str) -> int:
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    """Run the action named on the command line; what it prints goes to standard error."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module, function = sys.argv[1:3]
    replies.write(json.dumps(measured(module, function, json.load(sys.stdin))) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
