"""The SQL shell: reads statements at a terminal, and runs each one when it ends with a semicolon.

The prompt appears before the engine is loaded, which takes a second or two; a thread loads it while the first statement
is typed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from merganser.cli.advice import in_sql
from merganser.cli.arguments import format_of_path
from merganser.cli.sql_ask import agreed
from merganser.cli.sql_complete import completions
from merganser.cli.sql_output import Output
from merganser.cli.sql_text import WORDS, bare, is_complete
from merganser.errors import MerganserError

_HELP: Final = """\
\\l            list the databases
\\dt [NAME]    list the tables and views of a database
\\d TABLE      describe a table or view
\\c NAME       use a database
\\timing       show seconds, or stop showing them
\\o FILE       write the rows of the next query to a .csv, .json or .parquet file
\\? \\q         help, quit
A statement ends with a semicolon. Tab completes, Ctrl-C clears the line or stops the statement."""


class Shell:
    """Reads statements and shows what they give.

    Args:
        opened: returns the session; called once, in a thread.
        output: where results go.
        parameters: values of `:name`.
        ask: shows a question, and returns the answer; None: nothing is asked.
        database: shown in the prompt until the session is loaded.
    """

    def __init__(
        self,
        opened: Callable[[], Any],
        output: Output,
        parameters: dict[str, Any],
        ask: Callable[[str], str] | None = input,
        database: str = "default",
    ) -> None:
        self.output, self.parameters, self._ask, self._first = output, parameters, ask, database
        self.output.more = "\\o FILE writes all rows of the next query."
        self._opened, self._session = opened, None
        self._error: BaseException | None = None
        self._loader = threading.Thread(target=self._load, daemon=True)

    def _load(self) -> None:
        try:
            session = self._opened()
            session.execute("SELECT 1")  # so that the first statement of the person does not start the engine
            self._session = session
        except BaseException as error:
            self._error = error

    @property
    def session(self) -> Any:
        """The session; waits until it is loaded."""
        if self._session is None and self._error is None:
            if self._loader.ident is None:
                self._loader.start()
            self._loader.join()
        if self._error is not None:
            raise self._error
        return self._session

    @property
    def loaded(self) -> Any:
        """The session, or None while it is not loaded."""
        return self._session

    def run(self) -> None:
        """Read and run until the person leaves."""
        prompt = _prompt(self)
        print("merganser SQL. \\? shows help, \\q leaves.")

        def start(_: Any) -> None:
            if self._loader.ident is None:
                self._loader.start()

        prompt.app.after_render += start
        while True:
            database = self._session.state.database if self._session is not None else self._first
            try:
                if not self.do(prompt.prompt(f"{database}> ")):
                    return
            except KeyboardInterrupt:
                continue
            except EOFError:
                return

    def do(self, text: str) -> bool:
        """Run one input; return whether the shell goes on."""
        stripped = text.strip().rstrip(";").rstrip()
        try:
            if stripped.startswith("\\") or stripped.lower() in WORDS:
                return self._shortcut(stripped)
            if bare(stripped).strip():
                self._statements(text)
        except MerganserError as error:
            print(f"error: {in_sql(str(error))}")
        except Exception as error:
            print(
                f"error: {type(error).__name__}: {error}\nThis is not an error that merganser raises on purpose. Run "
                "the statement with `merganser --debug sql -e` and report what it prints."
            )
        return True

    def _statements(self, text: str) -> None:
        session, begun = self.session, time.perf_counter()
        try:
            for result in session.results(text, self.parameters, before=self._before):
                self.output.show(result)
                if result.has_rows and self.output.path is not None:
                    self.output.form, self.output.path = "table", None
        except KeyboardInterrupt:
            from merganser.sql.statements import Query

            changes = any(not isinstance(each, Query) for each in session.parsed(text, self.parameters))
            told = " If a commit was made before, `t$snapshots` has it." if changes else ""
            print(f"stopped after {time.perf_counter() - begun:.1f} s.{told}")

    def _before(self, statement: Any) -> bool:
        return self._ask is None or agreed(self._session, statement, self._ask)

    def _shortcut(self, text: str) -> bool:
        name, _, given = text.lstrip("\\").partition(" ")
        given = given.strip().rstrip(";")
        match name:
            case "q" | "quit" | "exit":
                return False
            case "?" | "help":
                print(_HELP)
            case "l":
                self._statements("SHOW DATABASES")
            case "d" | "dt" if not given or name == "dt":
                self._statements(f"SHOW TABLES IN {given}" if given else "SHOW TABLES")
            case "d":
                self._statements(f"DESCRIBE {given}")
            case "c" if given:
                self._statements(f"USE {given}")
            case "timing":
                self.output.timing = not self.output.timing
                print(f"timing is {'on' if self.output.timing else 'off'}")
            case "o":
                form = format_of_path(given) if given else "table"
                if form is None:
                    print(f"error: cannot write '{given}': name a file .csv, .json or .parquet.")
                else:
                    self.output.form, self.output.path = form, given or None
                    print(f"The rows of the next query go to {given or 'the terminal'}.")
            case _:
                print(f"error: there is no shortcut \\{name}, or it needs a name. \\? lists them.")
        return True


class _Completer(Completer):
    """Completion of prompt_toolkit."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        word, found = completions(document.text_before_cursor, self._shell.loaded, document.text_after_cursor)
        for name in found:
            yield Completion(name, -len(word))


def _prompt(shell: Shell) -> PromptSession[str]:
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "merganser"
    history = None
    try:
        state.mkdir(parents=True, exist_ok=True)
        path = state / "sql_history"
        path.touch(mode=0o600)
        history = FileHistory(str(path))
    except OSError:
        pass  # a home that cannot be written: history lasts as long as the shell
    return PromptSession(
        multiline=True,
        key_bindings=keys,
        history=history,
        completer=_Completer(shell),
        complete_while_typing=False,
        prompt_continuation=lambda width, *_: " " * max(0, width - 3) + "-> ",
    )
