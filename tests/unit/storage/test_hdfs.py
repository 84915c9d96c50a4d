"""HDFS: against a cluster, through a proxy that loses replies, and what is refused before anything is sent."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import traceback
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread, Timer
from typing import Any

import pytest

from merganser.errors import AlreadyExistsError, InvalidInputError, StorageError, UnsupportedError
from merganser.meta.create_once import create_once
from merganser.options import catalog
from merganser.options.option import Option
from merganser.storage import hdfs_connection
from merganser.storage.env import Env
from merganser.storage.hdfs import HdfsStorage
from merganser.storage.hdfs_connection import target_of
from merganser.storage.open import storage_for
from tests.hdfs import proxy as proxies
from tests.hdfs.cluster import Cluster
from tests.hdfs.proxy import Proxy

OPTIONS = [option for option in catalog.OPTIONS if option.key.startswith("hdfs.")]
TOKEN = "HAAEdGVzdA_S3cret"
ROOT = "hdfs://namenode:8020"


class TestOptions:
    @pytest.mark.parametrize(
        ("root", "options", "addresses"),
        [
            (ROOT, {}, ["http://namenode:9870"]),
            ("hdfs://namenode", {}, ["http://namenode:9870"]),
            ("webhdfs://namenode", {}, ["http://namenode:9870"]),
            ("webhdfs://namenode:50070", {}, ["http://namenode:50070"]),
            ("swebhdfs://namenode", {}, ["https://namenode:9871"]),
            ("swebhdfs://namenode:50470", {}, ["https://namenode:50470"]),
            ("hdfs://[::1]:8020", {"hdfs.webhdfs.address": "[::1]:9870"}, ["http://[::1]:9870"]),
            ("hdfs://cluster", {"hdfs.webhdfs.address": "nn1:1, nn2"}, ["http://nn1:1", "http://nn2:9870"]),
            ("hdfs://cluster", {"hdfs.webhdfs.address": "https://nn1,nn2:2"}, ["https://nn1:9871", "http://nn2:2"]),
        ],
    )
    def test_addresses_come_from_the_option_or_the_url(
        self, root: str, options: dict[str, str], addresses: list[str]
    ) -> None:
        assert list(target_of(root, options).addresses) == addresses

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"hdfs.usr": "a"}, r"unknown option 'hdfs.usr'.*'hdfs.user'"),
            ({"hdfs.kerberos": "yes"}, "'hdfs.kerberos' is 'yes'"),
            ({"hdfs.kerberos": "true", "hdfs.user": "a"}, "both say who asks"),
            ({"hdfs.delegation-token": TOKEN, "hdfs.user": "a"}, "both say who asks"),
            ({"hdfs.webhdfs.address": ""}, "is none"),
            ({"hdfs.webhdfs.address": f"http://user:{TOKEN}@host:1"}, "is none"),
            ({"hdfs.webhdfs.address": "host:port"}, "is none"),
            ({"hdfs.webhdfs.address": "host:1,,host:2"}, "is none"),
        ],
    )
    def test_mistakes_are_refused_before_a_job_starts(self, options: dict[str, str], said: str) -> None:
        with pytest.raises(InvalidInputError, match=said) as caught:
            HdfsStorage(ROOT, options)
        assert TOKEN not in str(caught.value)

    def test_a_root_names_a_host_and_nothing_below(self) -> None:
        for root in ("hdfs://", "hdfs://host/x", "ftp://host", "host"):
            with pytest.raises(InvalidInputError, match="no root of HDFS"):
                HdfsStorage(root)

    @pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
    def test_every_option_that_is_documented_changes_how_hdfs_is_reached(self, option: Option[Any]) -> None:
        value = next((text for text in option.type.choices if text != str(option.default).lower()), "other")
        assert target_of(ROOT, {option.key: value}) != target_of(ROOT, {})

    def test_jobs_ask_as_the_process_that_gave_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HADOOP_USER_NAME", "driver")
        storage = HdfsStorage(ROOT)
        monkeypatch.setenv("HADOOP_USER_NAME", "executor")
        assert pickle.loads(pickle.dumps(storage)).options == {"hdfs.user": "driver"}
        assert HdfsStorage(ROOT) != storage
        monkeypatch.delenv("HADOOP_USER_NAME")
        monkeypatch.setenv("LOGNAME", "own")
        assert HdfsStorage(ROOT).options == {"hdfs.user": "own"}
        assert HdfsStorage(ROOT, {"hdfs.kerberos": "true"}).options == {"hdfs.kerberos": "true"}

    def test_equal_options_share_a_session_and_a_process_keeps_some(self) -> None:
        pytest.importorskip("requests")
        first = HdfsStorage(ROOT)._connection()
        assert HdfsStorage(ROOT)._connection() is first
        for i in range(50):
            assert HdfsStorage(ROOT, {"hdfs.user": f"u{i}"})._connection() is not first
        assert len(hdfs_connection._SESSIONS.by_target) < 50
        assert HdfsStorage(ROOT)._connection() is not first

    def test_a_client_that_is_not_installed_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "requests", None)
        with pytest.raises(UnsupportedError, match=r"pip install 'merganser\[hdfs\]'"):
            HdfsStorage("hdfs://elsewhere").exists("hdfs://elsewhere/x")

    @pytest.mark.parametrize("path", [ROOT, "hdfs://other:8020/x", "/x", f"{ROOT}0/x", f"{ROOT}/../x", f"{ROOT}/a//b"])
    def test_paths_outside_the_root_are_refused(self, path: str) -> None:
        with pytest.raises(InvalidInputError, match="no path below"):
            HdfsStorage(ROOT).read(path)


class _Stub(BaseHTTPRequestHandler):
    """A server that answers each request by the first of its answers: a status, a body and headers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body of each reply waits for 40 ms
    answers: list[tuple[int, str, dict[str, str]]]
    asked: list[tuple[str, Any]]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers))
        status, body, headers = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    do_PUT = do_DELETE = do_GET  # noqa: N815


@contextmanager
def stub(*answers: tuple[int, str, dict[str, str]]) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    asked: list[tuple[str, Any]] = []
    bound = type("Bound", (_Stub,), {"answers": list(answers), "asked": asked})
    listener = ThreadingHTTPServer(("127.0.0.1", 0), bound)
    thread = Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"webhdfs://127.0.0.1:{listener.server_address[1]}", asked
    listener.shutdown()
    listener.server_close()
    thread.join()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_connection, "_RETRIES", replace(hdfs_connection._RETRIES, attempts=2, first_wait_ms=1))


@pytest.mark.usefixtures("impatient")
class TestWhoAsks:
    STATUS = '{"FileStatus": {"type": "FILE", "length": 1, "fileId": 7}}'

    def test_a_token_goes_with_each_request_and_stands_in_no_message(self) -> None:
        said = f'{{"RemoteException": {{"exception": "InvalidToken", "message": "token ({TOKEN}) is expired"}}}}'
        with stub((200, self.STATUS, {}), (403, said, {})) as (root, asked):
            storage = HdfsStorage(root, {"hdfs.delegation-token": TOKEN})
            assert storage.exists(f"{root}/x")
            assert f"delegation={TOKEN}" in asked[0][0]
            assert "user.name" not in asked[0][0]
            self._shows_no_token(storage, root)
        self._shows_no_token(storage, root)  # nobody answers, and the client's own errors have the URL
        assert TOKEN not in repr(storage) + repr(target_of(root, storage.options))

    def _shows_no_token(self, storage: HdfsStorage, root: str) -> None:
        for work in (
            lambda: storage.read(f"{root}/x"),
            lambda: storage.open(f"{root}/x"),
            lambda: storage.create(f"{root}/x", b"1"),
            lambda: storage.replace(f"{root}/x", b"1"),
            lambda: storage.writer(f"{root}/x").close(),
            lambda: storage.list(f"{root}/x"),
            lambda: storage.delete([f"{root}/x"]),
            lambda: storage.move_tree(f"{root}/x", f"{root}/y"),
        ):
            with pytest.raises(StorageError) as caught:
                work()
            assert TOKEN not in "".join(traceback.format_exception(caught.value)) + repr(caught.value.context)
            assert TOKEN.encode() not in pickle.dumps(caught.value)

    @pytest.mark.parametrize("package", ["requests_gssapi", "requests_kerberos"])
    def test_a_ticket_is_shown_by_the_package_that_is_there(
        self, package: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def authentication(**_: Any) -> Any:
            def add(request: Any) -> Any:
                request.headers["Authorization"] = "Negotiate ticket"
                return request

            return add

        made = types.ModuleType(package)
        made.__dict__.update(HTTPSPNEGOAuth=authentication, HTTPKerberosAuth=authentication, OPTIONAL=1)
        monkeypatch.setitem(sys.modules, "requests_gssapi", None)
        monkeypatch.setitem(sys.modules, "requests_kerberos", None)
        monkeypatch.setitem(sys.modules, package, made)
        with stub((200, self.STATUS, {})) as (root, asked):
            assert HdfsStorage(root, {"hdfs.kerberos": "true"}).exists(f"{root}/x")
        assert asked[0][1]["Authorization"] == "Negotiate ticket"
        assert "user.name" not in asked[0][0]

    def test_kerberos_without_a_client_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for package in ("requests_gssapi", "requests_kerberos"):
            monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UnsupportedError, match=r"pip install 'merganser\[kerberos\]'"):
            HdfsStorage("hdfs://kerberized", {"hdfs.kerberos": "true"}).exists("hdfs://kerberized/x")

    def test_a_server_that_wants_to_know_more_is_told_from_one_that_forbids(self) -> None:
        with (
            stub((401, "<html>Authentication required</html>", {"WWW-Authenticate": "Negotiate"})) as (root, _),
            pytest.raises(StorageError, match=r"401: it does not know who asks.*'hdfs.kerberos'"),
        ):
            HdfsStorage(root).read(f"{root}/x")

    def test_httpfs_is_read_and_not_written(self) -> None:
        """It answers as HttpFS of Hadoop 3.4.2 does."""
        status = '{"FileStatus": {"type": "DIRECTORY", "length": 0, "fileId": 16385}}'
        with stub((200, "data", {})) as (root, asked):
            assert HdfsStorage(root).read(f"{root}/x") == b"data"
        for work, answers in (
            (lambda storage, root: storage.create(f"{root}/x", b"1"), []),
            (lambda storage, root: storage.replace(f"{root}/x", b"1"), []),
            (lambda storage, root: storage.move_tree(f"{root}/x", f"{root}/y"), [(200, status, {})]),
        ):
            with stub(*answers, (200, '{"boolean": false}', {})) as (root, asked):
                with pytest.raises(UnsupportedError, match=r"is HttpFS.*Nothing was written"):
                    work(HdfsStorage(root), root)
                assert len(asked) == 1 + len(answers)

    def test_what_is_no_json_is_a_failure_of_the_store(self) -> None:
        with (
            stub((200, "<html>welcome</html>", {})) as (root, _),
            pytest.raises(StorageError, match="the reply is no JSON"),
        ):
            HdfsStorage(root).list(f"{root}/x")


@pytest.mark.hdfs
class TestAgainstHdfs:
    @pytest.fixture
    def place(self, hdfs: Cluster) -> tuple[HdfsStorage, str]:
        folder = hdfs.folder()
        storage, root = storage_for(folder.root, folder.options)
        assert isinstance(storage, HdfsStorage)
        return storage, root

    def test_of_racing_processes_exactly_one_wins_each_name(self, place: tuple[HdfsStorage, str]) -> None:
        """Forked ones, after their parent has connections: none reads the replies of another."""
        storage, root = place
        code = f"""if True:
            import os
            from merganser.errors import AlreadyExistsError
            from merganser.storage.hdfs import HdfsStorage
            storage = HdfsStorage({storage.root!r}, {storage.options!r})
            storage.create({root!r} + "/ready", b"")
            for writer in range(16):
                if not os.fork():
                    for number in range(3):
                        try:
                            storage.create(f"{root}/snapshot-{{number}}", str(writer).encode())
                            assert storage.read(f"{root}/snapshot-{{number}}") == str(writer).encode()
                            os.write(1, f"{{number}} {{writer}}\\n".encode())
                        except AlreadyExistsError:
                            pass
                    os._exit(0)
            print([os.wait()[1] for _ in range(16)])
        """
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        *won, ended = ran.stdout.splitlines()
        assert ended == str([0] * 16)
        assert sorted(line.split()[0] for line in won) == ["0", "1", "2"]
        for number, writer in map(str.split, won):
            assert storage.read(f"{root}/snapshot-{number}").decode() == writer
        assert len(storage.list(root)) == 4

    def test_names_of_webhdfs_and_hdfs_lead_to_one_place(self, hdfs: Cluster, place: tuple[HdfsStorage, str]) -> None:
        storage, root = place
        storage.create(f"{root}/file", b"1")
        other = f"webhdfs://{hdfs.addresses[0]}"
        assert HdfsStorage(other).read(f"{other}{root.removeprefix(storage.root)}/file") == b"1"

    def test_a_list_of_many_pages_is_whole(self, place: tuple[HdfsStorage, str]) -> None:
        storage, root = place
        names = [f"d{i:03d}" for i in range(230)]  # the namenode has 100 to a page
        for name in names:
            storage._connection().ask("PUT", "MKDIRS", f"{root.removeprefix(storage.root)}/{name}")
        assert sorted(entry.name for entry in storage.list(root)) == names

    def test_a_big_file_goes_through_the_local_disk_and_can_be_read_anywhere(
        self, place: tuple[HdfsStorage, str]
    ) -> None:
        storage, root = place
        chunk = random.Random(8).randbytes(1_000_003)
        sink = storage.writer(f"{root}/data")
        for _ in range(20):
            sink.stream.write(chunk)
        assert sink.tail(5) == chunk[-5:]
        assert not storage.exists(f"{root}/data")
        assert sink.close() == 20 * len(chunk)
        with storage.open(f"{root}/data") as file:
            assert file.read_at(2_000_000, 7_000_000) == (chunk * 20)[7_000_000:9_000_000]
        storage.copy([(f"{root}/data", f"{root}/copy")])
        assert storage.read(f"{root}/copy") == chunk * 20

    def test_empty_directories_go_and_others_stay(self, place: tuple[HdfsStorage, str]) -> None:
        storage, root = place
        storage.create(f"{root}/full/file", b"1")
        storage.create(f"{root}/empty/file", b"1")
        storage.delete([f"{root}/empty/file"])
        storage.delete_empty([f"{root}/{name}" for name in ("full", "empty", "none", "full/file")])
        assert [entry.name for entry in storage.list(root)] == ["full"]
        assert storage.exists(f"{root}/full/file")

    def test_what_a_user_may_not_do_is_said_and_not_done(self, hdfs: Cluster, place: tuple[HdfsStorage, str]) -> None:
        storage, root = place
        storage.create(f"{root}/file", b"1")
        storage._connection().ask("PUT", "SETPERMISSION", root.removeprefix(storage.root), permission="755")
        stranger = HdfsStorage(storage.root, hdfs.folder("stranger").options)
        assert stranger.read(f"{root}/file") == b"1"
        with pytest.raises(StorageError, match=r"Permission denied: user=stranger.*Nothing was changed") as caught:
            stranger.create(f"{root}/other", b"1")
        assert caught.value.context["changed"] is False
        for work in (
            lambda: stranger.replace(f"{root}/file", b"2"),
            lambda: stranger.delete([f"{root}/file"]),
            lambda: stranger.delete_tree(root),
            lambda: stranger.move_tree(root, f"{root}/new"),
        ):
            with pytest.raises(StorageError, match="Permission denied: user=stranger"):
                work()
        assert storage.read(f"{root}/file") == b"1"

    def test_a_file_below_a_file_cannot_be_made(self, place: tuple[HdfsStorage, str]) -> None:
        storage, root = place
        storage.create(f"{root}/file", b"1")
        with pytest.raises(StorageError, match="not a directory"):
            storage.create(f"{root}/file/below", b"1")
        with pytest.raises(StorageError, match="it is a file"):
            storage.list(f"{root}/file")
        assert storage.read(f"{root}/file") == b"1"

    def test_a_tree_does_not_move_into_itself(self, place: tuple[HdfsStorage, str]) -> None:
        storage, root = place
        storage.create(f"{root}/file", b"1")
        with pytest.raises(StorageError, match="under"):
            storage.move_tree(root, f"{root}/new/name")
        assert storage.read(f"{root}/file") == b"1"

    def test_a_namenode_on_standby_is_passed_over_and_a_failover_noticed(
        self, hdfs: Cluster, place: tuple[HdfsStorage, str]
    ) -> None:
        _, root = place
        both = HdfsStorage(
            hdfs.root, {"hdfs.webhdfs.address": ",".join(reversed(hdfs.addresses)), "hdfs.user": "tester"}
        )
        both.create(f"{root}/file", b"1")
        assert both._connection()._active == 1
        hdfs.tell("active 1")
        try:
            with pytest.raises(AlreadyExistsError):
                both.create(f"{root}/file", b"2")
            assert both._connection()._active == 0
            both.create(f"{root}/file-2", b"2")
        finally:
            hdfs.tell("active 0")
        assert both.read(f"{root}/file-2") == b"2"

    def test_a_commit_waits_while_no_namenode_is_active(self, hdfs: Cluster, place: tuple[HdfsStorage, str]) -> None:
        _, root = place
        both = HdfsStorage(hdfs.root, {"hdfs.webhdfs.address": ",".join(hdfs.addresses), "hdfs.user": "tester"})
        hdfs.tell("standby 0")
        taking_over = Timer(0.5, hdfs.tell, ["active 0"])
        taking_over.start()
        both.create(f"{root}/file", b"1")
        taking_over.join()
        assert both.read(f"{root}/file") == b"1"

    @pytest.mark.usefixtures("impatient")
    def test_safe_mode_is_a_failure_that_changed_nothing(self, hdfs: Cluster, place: tuple[HdfsStorage, str]) -> None:
        storage, root = place
        storage.create(f"{root}/file", b"1")
        hdfs.tell("safe 0")
        try:
            with pytest.raises(StorageError, match=r"(?i)safe mode") as caught:
                storage.create(f"{root}/file-2", b"1")
            assert caught.value.context["changed"] is False
            assert storage.read(f"{root}/file") == b"1"
        finally:
            hdfs.tell("unsafe 0")
        storage.create(f"{root}/file-2", b"1")


@pytest.mark.hdfs
class TestWhenRepliesAreLost:
    @pytest.fixture
    def proxy(self, hdfs: Cluster) -> Iterator[Proxy]:
        with proxies.running(hdfs.addresses[0]) as proxy:
            yield proxy

    @pytest.fixture
    def place(self, hdfs: Cluster, proxy: Proxy) -> tuple[HdfsStorage, str]:
        storage = HdfsStorage(hdfs.root, {"hdfs.webhdfs.address": proxy.address, "hdfs.user": "tester"})
        root = hdfs.folder().root
        storage.replace(f"{root}-before", b"")  # the first write asks what the server can do
        del proxy.seen[:]
        return storage, root

    @pytest.mark.parametrize("way", ["lose", "break"])
    def test_a_create_whose_reply_is_lost_has_happened(
        self, place: tuple[HdfsStorage, str], proxy: Proxy, way: str
    ) -> None:
        storage, root = place
        proxy.ways["RENAME"] = [way]
        storage.create(f"{root}/snapshot-1", b"ours")
        assert [(entry.name, entry.size) for entry in storage.list(root)] == [("snapshot-1", 4)]
        assert proxy.count("RENAME") == 1

    def test_a_create_that_never_arrived_has_not_and_will_not(
        self, place: tuple[HdfsStorage, str], proxy: Proxy
    ) -> None:
        storage, root = place
        proxy.ways["RENAME"] = ["refuse"]
        with pytest.raises(StorageError, match=r"snapshot-1.*Nothing was changed") as caught:
            storage.create(f"{root}/snapshot-1", b"ours")
        assert caught.value.context["changed"] is False
        assert storage.list(root) == []

    def test_a_create_that_another_won_is_not_taken_for_ours(
        self, place: tuple[HdfsStorage, str], proxy: Proxy
    ) -> None:
        storage, root = place
        storage.create(f"{root}/snapshot-1", b"theirs")
        proxy.ways["RENAME"] = ["lose"]
        with pytest.raises(StorageError, match="Nothing was changed"):
            storage.create(f"{root}/snapshot-1", b"ours")
        proxy.ways["RENAME"] = ["lose"]
        assert create_once(Env(storage), f"{root}/snapshot-1", b"ours", is_ours=lambda *_: False).stored is None
        assert storage.read(f"{root}/snapshot-1") == b"theirs"
        assert len(storage.list(root)) == 1

    @pytest.mark.usefixtures("impatient")
    def test_it_stays_unknown_only_while_nobody_answers(self, place: tuple[HdfsStorage, str], proxy: Proxy) -> None:
        storage, root = place
        proxy.ways |= {"RENAME": ["lose"], "DELETE": ["lose"], "OPEN": ["refuse"] * 2}
        with pytest.raises(StorageError) as caught:
            storage.create(f"{root}/snapshot-1", b"ours")
        assert "changed" not in caught.value.context
        proxy.ways |= {"RENAME": ["lose"], "DELETE": ["lose"], "OPEN": ["refuse"] * 2}
        path = f"{root}/snapshot-2"
        created = create_once(Env(storage), path, b"ours", is_ours=lambda found, _: found == b"ours")
        assert created.stored == b"ours"
        assert sorted(entry.name for entry in storage.list(root)) == ["snapshot-1", "snapshot-2"]

    def test_a_replace_is_sent_again_if_it_did_not_arrive(self, place: tuple[HdfsStorage, str], proxy: Proxy) -> None:
        storage, root = place
        storage.replace(f"{root}/LATEST", b"1")
        proxy.ways["RENAME"] = ["refuse", "lose"]
        storage.replace(f"{root}/LATEST", b"2")
        assert (storage.read(f"{root}/LATEST"), len(storage.list(root))) == (b"2", 1)
        assert proxy.count("RENAME") == 1 + 2

    def test_a_move_whose_reply_is_lost_has_happened(self, place: tuple[HdfsStorage, str], proxy: Proxy) -> None:
        storage, root = place
        storage.create(f"{root}/old/file", b"1")
        storage.create(f"{root}/other/file", b"2")
        proxy.ways["RENAME"] = ["lose"]
        storage.move_tree(f"{root}/old", f"{root}/new")
        assert storage.read(f"{root}/new/file") == b"1"
        proxy.ways["RENAME"] = ["lose"]
        with pytest.raises(StorageError, match="cannot move"):
            storage.move_tree(f"{root}/other", f"{root}/new")
        assert storage.read(f"{root}/other/file") == b"2"

    def test_other_requests_are_sent_again(self, place: tuple[HdfsStorage, str], proxy: Proxy) -> None:
        storage, root = place
        proxy.ways |= {op: ["lose", "break", "refuse"] for op in ("CREATE", "OPEN", "GETFILESTATUS", "LISTSTATUS")}
        sink = storage.writer(f"{root}/data")
        sink.stream.write(b"123")
        sink.close()
        assert storage.read(f"{root}/data") == b"123"
        assert storage.exists(f"{root}/data")
        assert [entry.size for entry in storage.list(root)] == [3]
        proxy.ways["DELETE"] = ["lose", "break"]
        storage.delete([f"{root}/data"])
        assert storage.list(root) == []

    def test_a_datanode_that_does_not_answer_is_left_out(self, place: tuple[HdfsStorage, str], proxy: Proxy) -> None:
        storage, root = place
        storage.create(f"{root}/file", b"1")
        del proxy.seen[:]
        proxy.moved_to = "localhost:1"
        assert storage.read(f"{root}/file") == b"1"
        assert [query.get("excludedatanodes") for _, query in proxy.seen] == [None, ["localhost"]]

    def test_the_only_datanode_is_asked_again(self, place: tuple[HdfsStorage, str], proxy: Proxy) -> None:
        storage, root = place
        proxy.moved_to = "127.0.0.1:1"
        storage.create(f"{root}/file", b"1")
        proxy.moved_to = "127.0.0.1:1"
        assert storage.read(f"{root}/file") == b"1"
