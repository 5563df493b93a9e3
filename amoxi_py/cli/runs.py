"""`amoxi runs`: the runs of all principals, for the person who runs the app; it works beside running servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from amoxi_py.cli.operating import (
    arguments_line,
    complain,
    cursor_option,
    each,
    json_option,
    limit_option,
    operate,
    profile_option,
    readable_json,
    short_time,
    tell_end,
    tell_more,
    tell_nothing,
)
from amoxi_py.cli.progress import Progress
from amoxi_py.cli.tables import print_fields, print_json, print_table
from amoxi_py.cli.visible_text import one_line, visible

if TYPE_CHECKING:
    from amoxi_py.domain.event import Event
    from amoxi_py.domain.message import Message
    from amoxi_py.domain.run import Run
    from amoxi_py.domain.tool_call import ToolCall
    from amoxi_py.engine.operator import Operator
    from amoxi_py.ports.views import CallView, Page

_STATUSES = ("queued", "running", "waiting", "completed", "failed", "cancelled")
_LONGEST_NOTE = 60
_DAY_S = 86_400.0

run_ids = click.argument("run_ids", metavar="RUN_ID...", nargs=-1, required=True)


@click.group()
def runs() -> None:
    """See, cancel, retry and purge runs of the app in the current folder, and answer what they ask.

    The runs of all principals, straight from the store: it works beside running servers, and without one.
    """


@runs.command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only those that are so.")
@click.option("--agent", metavar="AGENT", help="Only those of this agent.")
@click.option("--principal", metavar="ID", help="Only those of this principal, such as user:42.")
@limit_option
@cursor_option
@profile_option
@json_option
def list_runs(
    status: str | None,
    agent: str | None,
    principal: str | None,
    limit: int,
    cursor: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """List runs, newest first."""

    async def find(operator: Operator) -> Page[Run]:
        from amoxi_py.domain.run import RunStatus
        from amoxi_py.ports.operator_store import RunFilter

        wanted = RunFilter(status=None if status is None else RunStatus(status), agent=agent, principal=principal)
        return await operator.list_runs(wanted, limit=limit, cursor=cursor)

    page = operate(find, profile=profile)
    if as_json:
        print_json({"items": [_run_json(run) for run in page.items], "next_cursor": page.next_cursor})
        return
    if page.items:
        columns = ("run", "status", "agent", "asked by", "created", "note")
        print_table(columns, [_row(run) for run in page.items], whole=("run", "status", "created"))
    else:
        tell_nothing("no runs", profile)
    tell_more(page.next_cursor)


@runs.command()
@click.argument("run_id")
@click.option("--events", is_flag=True, help="Its events too, as they are logged now.")
@click.option("--follow", is_flag=True, help="Its events as they come, until it has ended.")
@profile_option
@json_option
def show(run_id: str, events: bool, follow: bool, profile: str | None, as_json: bool) -> None:
    """Show a run: status, messages, calls, usage."""
    if follow and as_json:
        raise click.UsageError("--follow goes on and on, so it cannot be one JSON document: use --events --json")

    async def read(operator: Operator) -> tuple[Run, tuple[Message, ...], list[Event], float]:
        run, messages = await operator.get_run(run_id), await operator.messages(run_id)
        logged = [event async for event in operator.events(run_id)] if events and as_json else []
        if not as_json:
            _print_run(run, messages, operator.now())
            if follow:
                await _print_events(_each_of(await operator.follow(run_id)))
            elif events:
                await _print_events(operator.events(run_id))
        return run, messages, logged, operator.now()

    run, messages, logged, now = operate(read, profile=profile)
    if as_json:
        from amoxi_py.domain.event import message_json

        told: dict[str, Any] = {**_run_json(run), "messages": [message_json(one, now=now) for one in messages]}
        if events:
            told["events"] = [
                {"id": event.seq, "event": event.type.label, "data": dict(event.data)} for event in logged
            ]
        print_json(told)


@runs.command()
@run_ids
@profile_option
@json_option
def cancel(run_ids: Sequence[str], profile: str | None, as_json: bool) -> None:
    """End runs now, wherever they are executed.

    One that had ended stays as it was.
    """

    async def end(operator: Operator, run_id: str) -> tuple[Run, Run]:
        return await operator.get_run(run_id), await operator.cancel(run_id)

    done, errors = each(run_ids, "cancelling runs", end, profile=profile)
    if as_json:
        print_json({"items": [_run_json(after) for _, after in done], "errors": errors})
    else:
        for before, after in done:
            print(f"{after.id}  {'had ended: ' if before.status.final else ''}{after.status.value}")
    tell_end(errors, profile)


@runs.command()
@run_ids
@profile_option
@json_option
def retry(run_ids: Sequence[str], profile: str | None, as_json: bool) -> None:
    """Start runs of the same messages anew.

    They are in the same conversations, and the old ones stay as they ended. The calls of a new run are new ones: what
    the old run did may be done again. A server, or `amoxi worker`, executes the new runs.
    """

    async def again(operator: Operator, run_id: str) -> tuple[str, Run]:
        return run_id, await operator.retry(run_id)

    done, errors = each(run_ids, "retrying runs", again, profile=profile, declarations=True)
    if as_json:
        print_json({"items": [{**_run_json(run), "retry_of": old} for old, run in done], "errors": errors})
    else:
        for old, run in done:
            print(f"{run.id}  {run.status.value}, a retry of {old}")
    tell_end(errors, profile)


@runs.command()
@click.option(
    "--older-than", metavar="DAYS", type=click.IntRange(1, 36_500), help="Instead of what 'ai.retention.days' says."
)
@click.option("--dry-run", is_flag=True, help="Only count.")
@profile_option
@json_option
def purge(older_than: int | None, dry_run: bool, profile: str | None, as_json: bool) -> None:
    """Delete conversations in which nothing has happened for DAYS days, with their runs and files.

    One with an open run stays, also one that waits for somebody. With 'ai.retention.days' the workers do the same every
    hour.
    """
    days = older_than if older_than is not None else _kept_for(profile)

    async def delete(operator: Operator) -> tuple[int, int]:
        conversations = of_runs = 0
        with Progress("purging", None) as progress:
            async for purged in operator.purge(days * _DAY_S, dry_run=dry_run):
                conversations, of_runs = conversations + purged.conversations, of_runs + purged.runs
                progress.advance(purged.conversations)
        return conversations, of_runs

    conversations, of_runs = operate(delete, profile=profile)
    if as_json:
        print_json({"older_than_days": days, "dry_run": dry_run, "conversations": conversations, "runs": of_runs})
    else:
        done = "would be deleted" if dry_run else "deleted"
        print(f"older than {days} days and ended: {conversations} conversations with {of_runs} runs {done}")


@runs.command()
@click.argument("call_id")
@click.argument("answer")
@profile_option
@json_option
def answer(call_id: str, answer: str, profile: str | None, as_json: bool) -> None:
    """Answer the question of a call, whoever was asked; the first answer counts.

    ANSWER is the text, or JSON where the question wants something else. It is recorded as given by system:<your user
    name>. The run goes on where a server, or `amoxi worker`, executes runs.
    """
    from amoxi_py.cli.answering import read_answer, resolved
    from amoxi_py.domain.encoding import decode_json
    from amoxi_py.errors import InvalidRequest

    async def settle(operator: Operator) -> CallView:
        wait = (await operator.question(call_id)).call.wait
        schema = None if wait is None or wait.schema is None else decode_json(wait.schema)
        value = read_answer(answer, None if schema is None else resolved(schema, schema))
        return await operator.answer(call_id, value, k=None if wait is None else wait.k)

    try:
        view = operate(settle, profile=profile)
    except InvalidRequest as error:
        for wrong in error.errors:
            complain(f"{wrong['field']}: {wrong['message']}")
        raise
    if as_json:
        from amoxi_py.surfaces.http.answers import question_json

        print_json(dict(question_json(view)))
        return
    wait = view.call.wait
    assert wait is not None, "it was answered"
    print(f"{view.call.id}  answered by {one_line(wait.by or '')}: {one_line(readable_json(wait.value or 'null'))}")


@runs.command("signal")
@click.argument("run_id")
@click.argument("name")
@click.argument("payload", required=False)
@profile_option
def send_signal(run_id: str, name: str, payload: str | None, profile: str | None) -> None:
    """Send a signal to a run; it is kept until one of its tools waits for NAME.

    PAYLOAD is JSON, or else a text; without it the payload is null.
    """
    from amoxi_py.cli.answering import read_answer

    async def send(operator: Operator) -> str:
        return await operator.signal(run_id, name, None if payload is None else read_answer(payload, {}))

    print(f"{operate(send, profile=profile)}  {one_line(name)} sent to {run_id}")


def _kept_for(profile: str | None) -> int:
    from amoxi_py.config.load import load_settings

    days = load_settings(profile=profile).ai.retention.days
    if days is None:
        raise click.UsageError("nothing says how old: give --older-than DAYS, or set 'ai.retention.days'")
    return days


def _run_json(run: Run) -> dict[str, Any]:
    from amoxi_py.surfaces.http.answers import run_json

    return {**run_json(run), "requested_by": {"id": run.principal.id, "name": run.principal.name}}


def _row(run: Run) -> tuple[str, ...]:
    return (run.id, run.status.value, run.agent, _asked_by(run), short_time(run.created_at), _note(run))


def _note(run: Run) -> str:
    if run.error is not None:
        return one_line(f"{run.error.code}: {run.error.message}", _LONGEST_NOTE)
    if run.waiting_for:
        return ", ".join(one_line(f"{one.kind} {one.tool or ''}".strip()) for one in run.waiting_for)
    return one_line(run.output or "", _LONGEST_NOTE)


def _asked_by(run: Run) -> str:
    name = run.principal.name
    return f"{run.principal.id} ({name})" if name and name not in run.principal.id else run.principal.id


def _print_run(run: Run, messages: tuple[Message, ...], now: float) -> None:
    usage = run.usage
    fields = [
        ("run", run.id),
        ("status", run.status.value),
        ("agent", run.agent),
        ("conversation", run.conversation_id),
        ("asked by", _asked_by(run)),
        ("created", short_time(run.created_at)),
        ("updated", short_time(run.updated_at)),
        ("attempt", str(run.attempt)),
        ("usage", f"{usage.requests} requests, {usage.input_tokens} tokens in, {usage.output_tokens} out"),
    ]
    if run.root_id is not None:
        fields.insert(1, ("part of", run.root_id))
    if run.error is not None:
        fields.append(("error", f"{run.error.code}: {run.error.message}"))
    for waiting in run.waiting_for:
        what = f"{waiting.tool} {arguments_line(waiting.arguments or '{}')}" if waiting.tool else ""
        if waiting.kind in ("question", "signal") and waiting.name:
            what += f": {one_line(waiting.name)}"
        until = "" if waiting.expires_at is None else f"until {short_time(waiting.expires_at)}"
        fields.append(("waits for", " ".join(filter(None, (waiting.kind, waiting.call_id, what, until)))))
    if run.result is not None:
        fields.append(("result", readable_json(run.result)))
    print_fields(fields)
    for message in messages:
        stopped = " (stopped)" if message.status == "stopped" else ""
        files = f" (files: {', '.join(message.files)})" if message.files else ""
        print(f"\n{short_time(message.created_at)}  {message.role}{stopped}{files}")
        if message.text:
            print("  " + visible(message.text).rstrip().replace("\n", "\n  "))
        for call in message.calls:
            _print_call(call, now)


def _print_call(call: ToolCall, now: float) -> None:
    from amoxi_py.domain.event import public_status

    print(f"  {one_line(call.tool)} {arguments_line(call.arguments)}\n    {call.id}  {public_status(call, now)}")
    if call.wait is not None and call.wait.kind == "child":
        print(f"    is the run {call.wait.name}")
    if call.wait is not None and call.wait.kind == "question":
        print(f"    asked: {one_line(call.wait.name)}")
        if call.wait.value is not None:
            print(f"    answer: {one_line(readable_json(call.wait.value))} by {one_line(call.wait.by or '')}")
    approval = call.approval
    if approval is not None and approval.decision is not None:
        by = f" by {approval.by}" if approval.by else ""
        reason = f": {approval.reason}" if approval.reason else ""
        print(f"    decision: {approval.decision}{one_line(by + reason)}")
        if approval.arguments is not None:
            print(f"    with: {arguments_line(approval.arguments)}")
    if call.result is not None:
        print(f"    -> {one_line(readable_json(call.result))}")


async def _each_of(batches: AsyncIterator[Sequence[Event]] | Any) -> AsyncIterator[Event]:
    async for batch in batches:
        for event in batch:
            yield event


async def _print_events(events: AsyncIterator[Event]) -> None:
    """Print events as they come, one a line: number, type, and what it tells as JSON."""
    from amoxi_py.domain.encoding import encode_json_unicode

    print()
    async for event in events:
        told = one_line(encode_json_unicode(dict(event.data)))
        print(f"{event.seq:>6}  {event.type.label:<18}  {told}", flush=True)
