"""`amoxi approvals`: the calls that wait for somebody's decision, and the operator's decision about one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import click

from amoxi_py.cli.operating import (
    arguments_line,
    complain,
    cursor_option,
    json_option,
    limit_option,
    operate,
    profile_option,
    read_arguments,
    short_time,
    tell_more,
    tell_nothing,
)
from amoxi_py.cli.tables import print_json, print_table
from amoxi_py.cli.visible_text import one_line

if TYPE_CHECKING:
    from amoxi_py.domain.approval import Approval
    from amoxi_py.engine.operator import Operator
    from amoxi_py.ports.views import CallView, Page

_LONGEST_REASON = 2000


@click.group()
def approvals() -> None:
    """See and decide what waits for a person, over all principals of the app in the current folder."""


@approvals.command("list")
@limit_option
@cursor_option
@profile_option
@json_option
def list_approvals(limit: int, cursor: str | None, profile: str | None, as_json: bool) -> None:
    """List the open approvals, those of the oldest run first."""

    async def find(operator: Operator) -> Page[CallView]:
        return await operator.list_approvals(limit=limit, cursor=cursor)

    page = operate(find, profile=profile)
    if as_json:
        print_json({"items": [_approval_json(view) for view in page.items], "next_cursor": page.next_cursor})
        return
    if page.items:
        columns = ("call", "agent", "tool", "arguments", "asked by", "approver", "expires")
        print_table(columns, [_row(view) for view in page.items], whole=("call", "tool"))
    else:
        tell_nothing("nothing waits for a decision", profile)
    tell_more(page.next_cursor)


class _Arguments(click.ParamType[dict[str, Any]]):
    """A JSON object."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, dict):
            return value
        try:
            return read_arguments(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@approvals.command()
@click.argument("call_id")
@click.argument("decision", type=click.Choice(["approve", "decline"]))
@click.option("--reason", metavar="TEXT", help="Told to the model.")
@click.option("--arguments", type=_Arguments(), metavar="JSON", help="Run it with these instead; with approve only.")
@profile_option
@json_option
def decide(
    call_id: str,
    decision: str,
    reason: str | None,
    arguments: dict[str, Any] | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Approve or decline a call, whoever should have; the first decision counts.

    It is recorded as made by system:<your user name>. The run goes on where a server, or `amoxi worker`, executes runs.
    """
    if arguments is not None and decision != "approve":
        raise click.UsageError("--arguments go with approve only: a declined call takes none")
    if reason is not None and len(reason) > _LONGEST_REASON:
        raise click.UsageError(f"--reason has {len(reason)} characters; the limit is {_LONGEST_REASON}")
    from amoxi_py.errors import InvalidRequest

    async def settle(operator: Operator) -> tuple[Approval, CallView]:
        word = cast(Literal["approve", "decline"], decision)
        return await operator.decide(call_id, word, reason=reason, arguments=arguments)

    try:
        approval, view = operate(settle, profile=profile, declarations=arguments is not None)
    except InvalidRequest as error:
        for wrong in error.errors:
            complain(f"{wrong['field']}: {wrong['message']}")
        raise
    if as_json:
        print_json(_approval_json(view))
        return
    effective = arguments_line(approval.arguments or view.call.arguments)
    done = "approved" if approval.decision == "approve" else "declined"
    print(f"{view.call.id}  {done} by {one_line(approval.by or '')}: {one_line(view.call.tool)} {effective}")


def _approval_json(view: CallView) -> dict[str, Any]:
    from amoxi_py.surfaces.http.answers import approval_json

    assert view.call.approval is not None, "only calls with an approval are listed and decided"
    return {**approval_json(view.call.approval, view)}


def _row(view: CallView) -> tuple[str, ...]:
    approval = view.call.approval
    assert approval is not None, "only calls with an approval are listed"
    expires = "" if approval.expires_at is None else short_time(approval.expires_at)
    arguments = arguments_line(view.call.arguments, 200)
    return (view.call.id, view.agent, view.call.tool, arguments, view.requested_by.id, approval.approver, expires)
