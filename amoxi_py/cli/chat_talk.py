"""One conversation in the terminal: turns, decisions and answers in place, and what Ctrl-C does at each moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from amoxi_py.cli.answering import parts_of, read_answer
from amoxi_py.cli.chat_process import ChatProcess
from amoxi_py.cli.chat_screen import Screen, arguments_text
from amoxi_py.cli.keyboard import Abandoned, Interrupted, Keyboard
from amoxi_py.cli.operating import read_arguments
from amoxi_py.domain.encoding import decode_json
from amoxi_py.errors import Conflict, Forbidden, InvalidRequest, NotFound

if TYPE_CHECKING:
    from amoxi_py.domain.event import Event
    from amoxi_py.domain.principal import Principal
    from amoxi_py.domain.run import Run, Waiting
    from amoxi_py.ports.views import ConversationPage

_SHOWN_BEFORE = 10
_ENDS = ("run.completed", "run.failed", "run.cancelled")


class Leave(Exception):
    """The person wants to leave."""


class Talk:
    """A principal's conversation with an agent, in this process.

    `asks` says whether there is a person who can be asked for decisions and answers; without one a turn ends when its
    run waits for one, and the run goes on waiting.
    """

    def __init__(
        self,
        process: ChatProcess,
        agent: str,
        principal: Principal,
        keyboard: Keyboard,
        screen: Screen,
        *,
        conversation_id: str | None,
        asks: bool,
    ) -> None:
        self._process = process
        self._agent = agent
        self._principal = principal
        self._keyboard = keyboard
        self._screen = screen
        self._asks = asks
        self._asked: str | None = None
        self._settled: set[str] = set()
        self.conversation_id = conversation_id

    def go_on(self, page: ConversationPage) -> None:
        """Show how an earlier conversation ended, and follow what still goes on in it."""
        from amoxi_py.domain.event import message_json

        shown = page.messages.items[-_SHOWN_BEFORE:]
        for message in shown:
            self._screen.message(message_json(message, now=self._process.engine.now()))
        if not shown:
            return
        run = self._process.do(self._process.engine.get_run(shown[-1].run_id, self._principal))
        if not run.status.final:
            self._screen.note(f"(this goes on: {run.status.value})")
            self._process.do(self._process.engine.take_up(page.conversation.id, self._principal, self._agent))
            waiting = [_asked(one) for one in run.waiting_for if one.kind in ("approval", "question")]
            self._follow(run.id, after=page.last_event_id, waiting=waiting)

    def say(self, text: str) -> Run:
        """Say something and show what comes of it; return the run as it is then.

        Raises:
            Leave: the person wants to leave.
        """
        submitted = self._process.do(
            self._process.engine.submit(
                self._agent, text, principal=self._principal, conversation_id=self.conversation_id
            )
        )
        self.conversation_id = submitted.run.conversation_id
        return self._follow(submitted.run.id)

    def note(self, text: str) -> None:
        """Tell the person something that is no part of the conversation."""
        self._screen.note(text)

    def _follow(self, run_id: str, *, after: int | None = None, waiting: list[dict[str, Any]] | None = None) -> Run:
        cancelled = False
        with self._process.follow(run_id, self._principal, after=after, on_event=self._note_settled) as following:
            while True:
                try:
                    if waiting and not cancelled:
                        self._settle(waiting.pop(0))
                        continue
                    with self._keyboard.listening():
                        event = following.next()
                    if event is None or not self._take(event):
                        break
                except Interrupted:
                    if cancelled:
                        raise Leave from None
                    cancelled = True
                    self._cancel(run_id)
        self._screen.end_line()
        return self._process.do(self._process.engine.get_run(run_id, self._principal))

    def _take(self, event: Event) -> bool:
        """Show an event, and ask when it asks; return whether the turn goes on."""
        label, data = event.type.label, event.data
        self._screen.show(label, data)
        if label in ("approval.requested", "question.asked"):
            if not self._asks:
                self._screen.note(self._who_settles(data))
                return False
            self._settle(data)
        return label not in _ENDS

    def _cancel(self, run_id: str) -> None:
        self._screen.note("cancelling; Ctrl-C again leaves")
        self._process.do(self._process.engine.cancel(run_id, self._principal))

    def _note_settled(self, event: Event) -> None:
        """On the loop: a question about a call that was settled elsewhere is not asked any further."""
        if event.type.label in ("approval.decided", "question.answered", "question.closed", "tool.completed"):
            self._settled.add(event.data["call_id"])
        elif event.type.label == "question.asked":  # a call may ask again
            self._settled.discard(event.data["call_id"])
        if self._asked is not None and (event.type.ends_run or self._asked in self._settled):
            self._settled.add(self._asked)
            self._keyboard.abandon()

    # -- decisions and answers

    def _settle(self, call: Mapping[str, Any]) -> None:
        """Ask about a call until there is a decision or an answer, here or elsewhere."""
        call_id = call["call_id"]
        self._asked = call_id
        settled = self._answered if "question" in call else self._decided
        if "question" in call:
            self._screen.note(f"\n{call['tool']} asks: {call['question']}")
        else:
            self._screen.note(f"\n{call['tool']} wants to run and needs your approval, with")
            for name, value in call["arguments"].items():
                self._screen.note(f"    {name}: {arguments_text(value)}")
        try:
            while call_id not in self._settled:
                if settled(call):
                    return
        except Abandoned:
            pass
        except EOFError:
            self._screen.note("\n" + self._who_settles(call))
            raise Leave from None
        finally:
            self._asked = None
        done = "answered" if "question" in call else "decided"
        self._screen.note(f"\nthis was {done} elsewhere, or is over")

    def _answered(self, call: Mapping[str, Any]) -> bool:
        """Ask for an answer once; return whether it is given."""
        values: dict[str, Any] = {}
        for name, prompt, schema, needed in parts_of(call["schema"]):
            text = self._ask(prompt)
            if text or needed:
                values[name] = read_answer(text, schema)
        answer = values.get("", values)
        send = self._process.engine.answers.answer(call["call_id"], self._principal, answer, k=call["k"])
        try:
            self._process.do(send)
        except InvalidRequest as error:
            self._refused(error)
            return False
        except (Conflict, NotFound) as error:
            self._screen.note(str(error))
        return True

    def _refused(self, error: InvalidRequest) -> None:
        self._screen.note(str(error))
        for wrong in error.errors:
            self._screen.note(f"  {wrong['field']}: {wrong['message']}")

    def _decided(self, call: Mapping[str, Any]) -> bool:
        """Ask once; return whether it is decided."""
        answer = self._ask("[a]pprove, [d]ecline or [e]dit? ").lower()
        decision: Literal["approve", "decline"] = "approve"
        reason, edited = None, None
        if answer in ("d", "decline"):
            decision = "decline"
            reason = self._ask("why (Enter for no reason)? ") or None
        elif answer in ("e", "edit"):
            edited = self._edited(call)
            if edited is None:
                return False
        elif answer not in ("a", "approve"):
            return False
        return self._send(call["call_id"], decision, reason, edited)

    def _ask(self, prompt: str, *, prefilled: str = "") -> str:
        return self._keyboard.ask(prompt, unless=lambda: self._asked in self._settled, prefilled=prefilled).strip()

    def _edited(self, call: Mapping[str, Any]) -> dict[str, Any] | None:
        before = arguments_text(call["arguments"])
        try:
            return read_arguments(self._ask("arguments: ", prefilled=before) or before)
        except ValueError as error:
            self._screen.note(str(error))
            return None

    def _send(
        self, call_id: str, decision: Literal["approve", "decline"], reason: str | None, edited: dict[str, Any] | None
    ) -> bool:
        decide = self._process.engine.decide(call_id, self._principal, decision, reason=reason, arguments=edited)
        try:
            self._process.do(decide)
        except InvalidRequest as error:
            self._refused(error)
            return False
        except Forbidden:
            self._screen.note(f"somebody else decides about this; {self._who_settles({'call_id': call_id})}")
        except (Conflict, NotFound) as error:
            self._screen.note(str(error))
        return True

    def _who_settles(self, call: Mapping[str, Any]) -> str:
        from amoxi_py.app.operating import is_opened_without_profile

        settings = self._process.settings
        option = "" if is_opened_without_profile(settings) else f" --profile {settings.profile}"
        if "question" in call:
            return f"it waits for an answer: amoxi runs answer {call['call_id']} ANSWER{option}"
        return f"it waits for a decision: amoxi approvals decide {call['call_id']} approve|decline{option}"


def _asked(waiting: Waiting) -> dict[str, Any]:
    """Return what a run waits for in the shape of the event that told of it."""
    arguments = read_arguments(waiting.arguments or "{}")
    told: dict[str, Any] = {"call_id": waiting.call_id, "tool": waiting.tool, "arguments": arguments}
    if waiting.kind == "question":
        schema = None if waiting.schema is None else decode_json(waiting.schema)
        told |= {"k": waiting.k, "question": waiting.name, "schema": schema}
    return told
