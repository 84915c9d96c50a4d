"""Run by Python when it starts: a process of the shared session of Spark is forked from one that has all imports.

See `tests/spark/forking.py`. This process only waits for the other one, which has its streams and its environment.
"""

import os
import sys

if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2].startswith("pyspark."):
    import json
    import socket

    with socket.socket(socket.AF_UNIX) as forks:
        forks.connect(os.environ["MERGANSER_FORKS"])
        told = json.dumps([sys.orig_argv[2:], dict(os.environ), sys.path, os.getcwd()]).encode()
        socket.send_fds(forks, [len(told).to_bytes(4)], [0, 1, 2])
        forks.sendall(told)
        forks.recv(1)
    os._exit(0)
