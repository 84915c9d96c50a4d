"""The server of shard streams: `python -m benchmarks.serve_stream`.

A server process serves a table of ten columns with 64 shards, and a client process asks over many connections that stay
open. Cores are shared, so beside the times stands the CPU time that the server took for a request.

    polls       2,000 polls a second of idle shards, sent by a clock that does not wait for answers; the time of a poll
                counts from the moment when it was due
    most        as many polls as the connections can ask one after the other
    wait        every connection waits for records of an idle shard; then a row is committed
    json, arrow each connection reads a shard from its beginning, in pages
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import merganser as mg

SHARDS = 64
COLUMNS = 10


class _Connection(asyncio.Protocol):
    """A connection that asks one thing at a time and hands over the status and the length of the answer."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._done: asyncio.Future[tuple[int, bytes, bytes]] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, path: str) -> asyncio.Future[tuple[int, bytes, bytes]]:
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        return self._done

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end])
        at = head.index(b"content-length: ") + 16
        size = int(head[at:].split(b"\r\n", 1)[0])
        if len(self._buffer) >= end + 4 + size:
            body = bytes(self._buffer[end + 4 : end + 4 + size])
            self._buffer.clear()
            assert self._done is not None
            self._done.set_result((int(head[9:12]), head, body))


async def _connected(port: int, count: int) -> list[_Connection]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(_Connection, "127.0.0.1", port))[1] for _ in range(count)]


async def _polls(port: int, count: int, paths: list[str], rate: float, seconds: float) -> dict[str, Any]:
    """Ask at a rate, or with rate 0 as fast as the connections can."""
    loop = asyncio.get_running_loop()
    free: asyncio.Queue[_Connection] = asyncio.Queue()
    for connection in await _connected(port, count):
        free.put_nowait(connection)
    times: list[float] = []
    statuses: Counter[int] = Counter()

    async def one(number: int, due: float) -> None:
        connection = await free.get()
        begun = due if rate else loop.time()
        status, _, _ = await connection.ask(paths[number % len(paths)])
        times.append(loop.time() - begun)
        statuses[status] += 1
        free.put_nowait(connection)

    begin = loop.time()
    if rate:
        tasks = []
        total = int(rate * seconds)
        number = 0
        while number < total:
            while number < total and begin + number / rate <= loop.time():
                tasks.append(loop.create_task(one(number, begin + number / rate)))
                number += 1
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)
    else:

        async def on(first: int) -> None:
            number = first
            while loop.time() - begin < seconds:
                await one(number, 0)
                number += 1

        await asyncio.gather(*(on(i) for i in range(count)))
    return {"times": times, "statuses": dict(statuses), "seconds": loop.time() - begin}


async def _waits(port: int, paths: list[str], count: int, say: Any) -> dict[str, Any]:
    connections = await _connected(port, count)
    asked = [each.ask(paths[i % len(paths)]) for i, each in enumerate(connections)]
    await asyncio.sleep(2)
    say.send("waiting")
    bodies = await asyncio.gather(*asked)
    ends = [time.time() for status, _, body in bodies if status == 200 and b'"records":[{' in body]
    return {"woken": len(ends), "last": max(ends, default=0.0), "statuses": dict(Counter(s for s, _, _ in bodies))}


async def _read(port: int, table: str, iterators: list[str], form: str, limit: int) -> dict[str, Any]:
    found = {"bytes": 0, "pages": 0}

    async def one(connection: _Connection, iterator: str) -> None:
        while True:
            path = f"/v1/tables/{table}/records?iterator={iterator}&limit={limit}&format={form}"
            status, head, body = await connection.ask(path)
            assert status == 200, body
            found["bytes"] += len(body)
            found["pages"] += 1
            if form == "json":
                start = body[:400]
                iterator = start[18 : start.index(b'"', 18)].decode()
                more = b'"may_have_more":true' in start
            else:
                iterator = head.split(b"next-iterator: ", 1)[1].split(b"\r\n", 1)[0].decode()
                more = b"may-have-more: true" in head
            if not more:
                return

    connections = await _connected(port, len(iterators))
    await asyncio.gather(*(one(c, i) for c, i in zip(connections, iterators, strict=True)))
    return found


def _client(say: Any, what: str, arguments: dict[str, Any]) -> None:
    function = {"polls": _polls, "read": _read}.get(what)
    begun = time.process_time()
    found = asyncio.run(function(**arguments) if function else _waits(**arguments, say=say))
    say.send({**found, "client_cpu": time.process_time() - begun})


class _Server:
    def __init__(self, warehouse: Path) -> None:
        command = [sys.executable, "-m", "merganser", "serve-stream", "-w", str(warehouse), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[-1]
        self.port = int(self.address.rpartition(":")[2])

    def json(self, path: str) -> Any:
        with urllib.request.urlopen(self.address + path) as answer:
            return json.load(answer)

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def run(self, what: str, arguments: dict[str, Any], on_wait: Any = None) -> dict[str, Any]:
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        client = multiprocessing.get_context("spawn").Process(target=_client, args=(theirs, what, arguments))
        client.start()
        before = self.cpu()
        found = ours.recv()
        if on_wait is not None:
            idle = self.cpu() - before
            committed = on_wait()
            found = {**ours.recv(), "idle_cpu": idle, "committed": committed}
        client.join()
        return {**found, "cpu": self.cpu() - before}


def _table(warehouse: Path, rows: int, seed: int) -> Any:
    random = np.random.default_rng(seed)
    catalog = mg.catalog(warehouse)
    catalog.create_database("shop")
    schema = {"k": "BIGINT"} | {f"c{i}": ("BIGINT", "DOUBLE", "STRING")[i % 3] for i in range(COLUMNS - 1)}
    options = {"bucket": str(SHARDS), "stream.enabled": "true", "stream.retention": "1 d"}
    table = catalog.create_table("shop.events", schema=schema, primary_key=["k"], options=options)
    for begin in range(0, rows, 250_000):
        count = min(250_000, rows - begin)
        columns: dict[str, Any] = {"k": np.arange(begin, begin + count)}
        for i in range(COLUMNS - 1):
            values = random.integers(0, 1 << 40, count)
            columns[f"c{i}"] = (
                values,
                values / 7,
                pa.array(values).cast(pa.string()),
            )[i % 3]
        table.write(pa.table(columns))
    return table


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=2000, help="polls a second")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--limit", type=int, default=5000, help="records of a page")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--work", default=".bench")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    warehouse = Path(options.work).resolve() / "serve_stream"
    shutil.rmtree(warehouse, ignore_errors=True)
    table = _table(warehouse, options.rows, options.seed)
    server = _Server(warehouse)
    try:
        shards = [each["shard_id"] for each in server.json("/v1/tables/shop.events/shards")["shards"]]
        ask = "/v1/tables/shop.events/iterator?shard="
        ends = [server.json(f"{ask}{shard}")["iterator"] for shard in shards]
        starts = [server.json(f"{ask}{shard}&at=trim_horizon")["iterator"] for shard in shards]
        polls = [f"/v1/tables/shop.events/records?iterator={each}" for each in ends]
        print(f"{'':8}{'per s':>10}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}{'server CPU us each':>20}{'client':>8}")
        for name, rate in (("polls", options.rate), ("most", 0.0)):
            arguments = {
                "port": server.port, "count": options.connections, "paths": polls, "rate": rate,
                "seconds": options.seconds,
            }  # fmt: skip
            found = server.run("polls", arguments)
            times = sorted(found["times"])
            assert set(found["statuses"]) == {200}, found["statuses"]
            each = 1e6 / len(times)
            print(
                f"{name:8}{len(times) / found['seconds']:10,.0f}{statistics.median(times) * 1e3:9.1f}"
                f"{times[int(len(times) * 0.99)] * 1e3:9.1f}{times[-1] * 1e3:9.1f}{found['cpu'] * each:20,.0f}"
                f"{found['client_cpu'] * each:8,.0f}",
                flush=True,
            )

        def committed() -> float:
            table.write([dict.fromkeys(table.schema.names) | {"k": k} for k in range(1 << 40, (1 << 40) + 1280)])
            return time.time()

        waits = {"port": server.port, "paths": [f"{each}&wait=25" for each in polls], "count": options.connections}
        found = server.run("wait", waits, committed)
        late, idle = found["last"] - found["committed"], found["idle_cpu"] / 2
        print(
            f"wait    {found['woken']} of {options.connections} woken, the last {late:.3f} s after the commit;", end=" "
        )
        print(f"server CPU {idle:.2f} s per second of waiting", flush=True)
        for form in ("json", "arrow"):
            arguments = {"port": server.port, "table": "shop.events", "iterators": starts, "form": form,
                         "limit": options.limit}  # fmt: skip
            begun = time.perf_counter()
            found = server.run("read", arguments)
            seconds = time.perf_counter() - begun
            print(
                f"{form:8}{options.rows / seconds:10,.0f} records/s, {options.rows / found['cpu']:,.0f} per second of "
                f"server CPU, {found['bytes'] / 1e6:,.0f} MB in {found['pages']} pages",
                flush=True,
            )
        print(f"peak memory of the server: {server.peak_mb():,.0f} MB")
    finally:
        server.process.terminate()
        print(f"stopped with exit code {server.process.wait()}")
        shutil.rmtree(warehouse, ignore_errors=True)


if __name__ == "__main__":
    main()
