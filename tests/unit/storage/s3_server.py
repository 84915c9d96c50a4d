"""An S3 server on the loopback interface: moto's, with writes that are atomic.

    python -m tests.unit.storage.s3_server <port>

moto looks whether an object is there, and puts it a moment later. Of two threads both may win then, which S3 excludes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

_dispatch: Final = DomainDispatcherApplication(create_backend_app)
_lock: Final = threading.Lock()


def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request; those that write, one after the other."""
    if environ["REQUEST_METHOD"] not in ("PUT", "POST", "DELETE"):
        return _dispatch(environ, start_response)
    with _lock:
        return list(_dispatch(environ, start_response))


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), answer, threaded=True, request_handler=MotoRequestHandler)
