"""`amoxi chat`: an agent of the app in the terminal, as durable as on the web; it works beside running servers."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import click

from amoxi_py.cli.operating import complain, print_any_letter
from amoxi_py.cli.tables import print_json
from amoxi_py.cli.visible_text import one_line

if TYPE_CHECKING:
    from amoxi_py.app.runtime import Runtime
    from amoxi_py.cli.chat_process import ChatProcess
    from amoxi_py.cli.chat_talk import Talk
    from amoxi_py.cli.keyboard import Keyboard
    from amoxi_py.config.settings import Settings
    from amoxi_py.domain.run import Run
    from amoxi_py.engine.engine import Engine
    from amoxi_py.ports.views import ConversationPage


@click.command()
@click.argument("agent", required=False)
@click.option("--conversation", "conversation_id", metavar="ID", help="Go on with an earlier conversation of yours.")
@click.option("--message", metavar="TEXT", help="One turn: say this, show the answer, and leave.")
@click.option("--json", "as_json", is_flag=True, help="With --message: the run as one JSON document.")
@click.option("--verbose", is_flag=True, help="Show the log, with tracebacks.")
def chat(agent: str | None, conversation_id: str | None, message: str | None, as_json: bool, verbose: bool) -> None:
    """Talk to AGENT of the app in the current folder; without AGENT, to the only one there is.

    The app runs in this process, on the same store as its servers, with the settings of `amoxi dev` unless
    AMOXI_PROFILE says otherwise. Ctrl-C cancels the turn, a second one or Ctrl-D leaves. Without a terminal each line
    of the input is a message. With --message the exit code is 0 only when the run is completed.
    """
    if as_json and message is None:
        raise click.UsageError("--json is for one turn: it goes with --message")
    if message is not None and not message.strip():
        raise click.UsageError("--message is empty")
    from amoxi_py.cli.chat_process import ChatProcess
    from amoxi_py.cli.keyboard import Keyboard

    keyboard = Keyboard()
    signal.signal(signal.SIGTERM, _leave)
    print_any_letter()
    runtime = _make_runtime(verbose)
    if agent is not None or conversation_id is None:
        agent = _choose(runtime.engine, agent)
    keyboard.install()
    with ChatProcess(runtime) as process:
        sys.exit(_Chat(process, keyboard, as_json=as_json).run(agent, conversation_id, message))


class _Chat:
    """The command, once the app runs."""

    def __init__(self, process: ChatProcess, keyboard: Keyboard, *, as_json: bool) -> None:
        from amoxi_py.app.operating import person_at_the_shell

        self._process = process
        self._keyboard = keyboard
        self._principal = person_at_the_shell()
        self._as_json = as_json

    def run(self, agent: str | None, conversation_id: str | None, message: str | None) -> int:
        """Talk, and return the exit code."""
        page = None if conversation_id is None else self._find(conversation_id, agent)
        name = page.conversation.agent if page is not None else agent
        assert name is not None, "without a conversation an agent was chosen"
        if message is not None:
            return self._one_turn(name, conversation_id, message)
        if not sys.stdin.isatty():
            return self._piped(self._talk(name, conversation_id, asks=False))
        return self._interactive(name, page)

    def _find(self, conversation_id: str, agent: str | None) -> ConversationPage:
        return self._process.do(
            self._process.engine.read_conversation(conversation_id, self._principal, agent, limit=20)
        )

    def _talk(self, agent: str, conversation_id: str | None, *, asks: bool, silent: bool = False) -> Talk:
        from amoxi_py.cli.chat_screen import Screen
        from amoxi_py.cli.chat_talk import Talk

        return Talk(
            self._process,
            agent,
            self._principal,
            self._keyboard,
            Screen(silent=silent),
            conversation_id=conversation_id,
            asks=asks,
        )

    def _one_turn(self, agent: str, conversation_id: str | None, message: str) -> int:
        from amoxi_py.cli.chat_talk import Leave
        from amoxi_py.surfaces.http.answers import run_json

        talk = self._talk(agent, conversation_id, asks=sys.stdin.isatty() and not self._as_json, silent=self._as_json)
        try:
            run = talk.say(message)
        except Leave:
            return 1
        if self._as_json:
            print_json(run_json(run))
        return _exit_code(run)

    def _piped(self, talk: Talk) -> int:
        from amoxi_py.cli.chat_talk import Leave
        from amoxi_py.cli.keyboard import Interrupted

        try:
            while line := self._next_line():
                if line.strip() and (failed := _exit_code(talk.say(line.strip()))):
                    return failed
        except (Leave, Interrupted):
            return 1
        return 0

    def _next_line(self) -> str:
        with self._keyboard.listening():
            return sys.stdin.readline()

    def _interactive(self, agent: str, page: ConversationPage | None) -> int:
        from amoxi_py.cli.chat_talk import Leave

        talk = self._talk(agent, None if page is None else page.conversation.id, asks=True)
        talk.note(f"{agent}: Ctrl-C cancels a turn, Ctrl-D leaves")
        try:
            if page is not None:
                talk.go_on(page)
            while (text := self._next_message(talk)) is not None:
                if text:
                    self._say(talk, text)
        except Leave:
            pass
        if talk.conversation_id is not None:
            talk.note(f"\ngo on with: amoxi chat {agent} --conversation {talk.conversation_id}")
        return 0

    def _next_message(self, talk: Talk) -> str | None:
        """Return what the person types, or None when they leave."""
        from amoxi_py.cli.keyboard import Abandoned, Interrupted

        pressed = False
        while True:
            try:
                return self._keyboard.ask("> ", remember=True).strip()
            except EOFError:
                return None
            except Abandoned:
                continue
            except Interrupted:
                if pressed:
                    return None
                pressed = True
                talk.note("\nCtrl-C again, or Ctrl-D, leaves")

    def _say(self, talk: Talk, text: str) -> None:
        from amoxi_py.errors import RequestError

        try:
            talk.say(text)
        except RequestError as error:
            complain(str(error))


def _make_runtime(verbose: bool) -> Runtime:
    from amoxi_py.app.declarations import read_declarations
    from amoxi_py.app.runtime import Runtime
    from amoxi_py.config.load import PROFILE_VARIABLE, load_settings
    from amoxi_py.config.settings import DEV

    settings = load_settings(profile=os.environ.get(PROFILE_VARIABLE) or DEV)
    _configure_logging(settings, verbose)
    return Runtime(settings, read_declarations(settings), worker=True, executes="own_conversations")


def _configure_logging(settings: Settings, verbose: bool) -> None:
    """Keep the log out of the conversation, but for errors, one line each."""
    from amoxi_py.app.logs import configure_logging, redaction_of

    configure_logging(settings)
    if not verbose:
        logging.getLogger().setLevel(logging.ERROR)
        for handler in logging.getLogger().handlers:
            handler.setFormatter(_OneLine(redaction_of(settings)))


class _OneLine(logging.Formatter):
    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        why = f": {type(error).__name__}: {error}" if error is not None else ""
        what = record.getMessage().partition("\n")[0]
        return one_line(self._redact(f"amoxi: {what}{why} (--verbose shows more)"))


def _choose(engine: Engine, wanted: str | None) -> str:
    """Return the name of the agent to talk to; raise an error of use that lists them when that is not clear."""
    from amoxi_py.app.operating import person_at_the_shell

    person = person_at_the_shell()
    agents = engine.agents(person)
    if wanted is not None:
        known = engine.catalog.agents.get(wanted)
        if known is not None and known.exists_for(person):
            return wanted
    elif len(agents) == 1:
        return agents[0].name
    if not agents:
        raise click.UsageError("this app has no agent to talk to")
    listed = "".join(f"\n  amoxi chat {agent.name:<20} {one_line(agent.description)}".rstrip() for agent in agents)
    raise click.UsageError(f"no agent {wanted!r}; there are:{listed}" if wanted else f"say which agent:{listed}")


def _exit_code(run: Run) -> int:
    return 0 if run.status.value == "completed" else 1


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
