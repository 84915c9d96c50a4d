"""Write the golden traces and signatures: `python -m tests.traces`. Prints requests and depth of each road."""

from __future__ import annotations

from .roads import ROADS
from .signatures import signatures
from .test_traces import GOLDEN, HERE
from .tracing import text_of

(HERE / "signatures.txt").write_text(signatures(), encoding="utf-8")
for path in GOLDEN.iterdir():
    path.unlink()
for name, road in ROADS.items():
    made = road()
    text = text_of(made.log, name, made.files)
    (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
    print(text.partition("\n")[0])
