"""Kills a chain of streams at a call of storage: every Python of its Spark imports this module first.

`MERGANSER_KILL` is "verb:number:when:who": the call of `LocalStorage` or `LocalSink`, counted in each process; "before"
or "after" it; "all" processes or the one that calls "alone". `MERGANSER_ROOT` is the process group of the driver and
its JVM. The kill happens once: it leaves a file.
"""

import os
import signal

KILL = os.environ.get("MERGANSER_KILL")
if KILL:
    verb, number, when, who = KILL.split(":")
    done = os.environ["MERGANSER_KILLED"]
    calls = 0

    def _wrapped(call):  # type: ignore[no-untyped-def]
        def run(*args, **kwargs):  # type: ignore[no-untyped-def]
            global calls
            calls += 1
            if calls != int(number) or os.path.exists(done):
                return call(*args, **kwargs)
            if when == "after":
                call(*args, **kwargs)
            with open(done, "w") as file:
                file.write(f"{KILL} in {os.getpid()}")
            if who == "all":
                os.killpg(int(os.environ["MERGANSER_ROOT"]), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

        return run

    import merganser.storage.local as local

    owner = local.LocalSink if verb == "close" else local.LocalStorage
    setattr(owner, verb, _wrapped(getattr(owner, verb)))
