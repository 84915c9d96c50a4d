"""Forks the Python processes of the shared session of Spark, from one process that has all their imports.

Spark starts a process of Python for each kind of work and for each stream that is read, and a new one after each
failure. To import merganser and the libraries below it takes each of them a second, which is longer than the work of
most tests. Here `forked/sitecustomize.py` asks this process for a fork instead. The tests on a cluster and over
Connect, the demo and the examples of the documentation do without, as users do.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen

IMPORTED = ("merganser.spark.source", "pandas", "pyarrow.compute", "pyspark.worker")


@contextmanager
def forking(path: str) -> Iterator[dict[str, str]]:
    """Run the process that forks, with a socket at the path; gives the settings of the session."""
    # The seed is Spark's for its processes. OpenBLAS would start a thread for each core.
    environment = {"PYTHONHASHSEED": "0", **os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.spark.forking", path]
    with Popen(command, env=environment, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = {"PYTHONPATH": os.path.join(os.path.dirname(__file__), "forked"), "MERGANSER_FORKS": path}
        yield {f"spark.executorEnv.{name}": value for name, value in found.items()}


def main(path: str) -> None:
    """Serve at the path of a socket until the input ends, which is when the process of the tests ends."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # so that the processes do not look at what they share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select.select([sys.stdin, listening], [], [])[0]:
            asking, _ = listening.accept()
            if not os.fork():
                listening.close()
                _run(asking)
            asking.close()


def _run(asking: socket.socket) -> None:
    size, streams, _, _ = socket.recv_fds(asking, 4, 3)
    with asking.makefile("rb") as told:
        (module, *arguments), environment, path, directory = json.loads(told.read(int.from_bytes(size)))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.path[:], sys.argv[1:] = path, arguments
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # what it read of the environment when it was imported
    importlib.import_module("merganser.spark.workers")._IS_KEPT = environment.get("SPARK_REUSE_WORKER") == "1"
    if module != "pyspark.daemon":  # which forks, and ends with its input
        threading.Thread(target=_end_with, args=(asking,), daemon=True).start()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _end_with(asking: socket.socket) -> None:
    """End this process when Spark kills the one that it knows of."""
    asking.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1])
