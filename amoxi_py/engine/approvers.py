"""Who may decide about a call: the rule of its approval, and the app's functions where one of them is the approver."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from amoxi_py.declare.approver import ApprovalRequest
from amoxi_py.declare.definitions import Catalog, Instances, ToolDefinition
from amoxi_py.domain.approval import FUNCTION, OWNER, may_decide
from amoxi_py.domain.encoding import clean_json, decode_json, encode_json
from amoxi_py.domain.ids import parse_call_id
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.calls import read_arguments
from amoxi_py.engine.settings import McpApprovals
from amoxi_py.engine.threads import ThreadPool
from amoxi_py.errors import ArgumentsInvalid, Forbidden, InvalidRequest, NotFound
from amoxi_py.ports.views import CallView

log = logging.getLogger("amoxi_py.engine")

_THREADS = 8


def declined_at_once(tool: ToolDefinition, asker: Principal, mcp_approvals: McpApprovals) -> bool:
    """Whether nobody is asked about a call that needs an approval: it was asked for by MCP, and is declined.

    So it is when the app says so; and always when it would be for a token's holder to decide, who is no person.
    """
    if asker.channel != "mcp":
        return False
    return mcp_approvals == "decline" or (tool.approver == OWNER and asker.id.startswith("mcp:"))


class Approvers:
    """Asks approvers; a function that fails, or that the app has no more, says no.

    Attributes:
        functions: Whether the app has approvers that are functions.
    """

    def __init__(self, catalog: Catalog, instances: Instances) -> None:
        self._catalog = catalog
        self._instances = instances
        self._threads = ThreadPool(_THREADS)
        self.functions = any(tool.may_decide is not None for tool in catalog.tools.values())

    async def allow(self, view: CallView, principal: Principal) -> bool:
        """Return what the function says that is the approver of a call, if one is.

        Raises:
            Forbidden: the run's owner, who is not the approver.
            NotFound: anybody else who is not.
        """
        allowed = await self._ask(view, principal)
        if self._may(view, principal, allowed):
            return allowed
        if principal.owner_key == view.requested_by.owner_key:
            raise Forbidden(f"the call {view.call.id!r} is for somebody else to decide", code="not_approver")
        raise NotFound("approval", view.call.id)

    async def of(self, views: Iterable[CallView], principal: Principal) -> tuple[CallView, ...]:
        """Return those calls that a principal may decide about; functions are asked one after the other."""
        return tuple([view for view in views if self._may(view, principal, await self._ask(view, principal))])

    def edited(self, view: CallView, decision: str, arguments: dict[str, object]) -> str:
        """Return edited arguments as they are stored.

        Raises:
            InvalidRequest: they do not fit the tool, or come with a decline.
        """
        if decision != "approve":
            raise InvalidRequest("edited arguments only go with an approval", code="arguments_with_decline")
        tool = self._tool(view)
        if tool is None:
            raise InvalidRequest(f"the tool {view.call.tool!r} does not exist any more", code="tool_unknown")
        cleaned: dict[str, object] = clean_json(arguments)
        try:
            read_arguments(tool, cleaned)
        except ArgumentsInvalid as error:
            errors = tuple({"field": f"arguments.{field}", "message": reason} for field, reason in error.errors)
            message = f"the edited arguments do not fit {tool.name!r}"
            raise InvalidRequest(message, code="arguments_invalid", errors=errors) from None
        return encode_json(cleaned)

    def _may(self, view: CallView, principal: Principal, allowed: bool) -> bool:
        approval = view.call.approval
        return approval is not None and may_decide(approval, principal, view.requested_by, allowed=allowed)

    async def _ask(self, view: CallView, principal: Principal) -> bool:
        approval = view.call.approval
        if approval is None or approval.approver != FUNCTION or principal.tenant != view.requested_by.tenant:
            return False
        tool = self._tool(view)
        if tool is None or tool.may_decide is None:
            return False
        request = ApprovalRequest(
            call_id=view.call.id,
            run_id=view.run_id,
            agent=view.agent,
            tool=view.call.tool,
            arguments=decode_json(view.call.arguments),
            requested_by=view.requested_by,
            created_at=approval.created_at,
            expires_at=approval.expires_at,
        )
        try:
            answer = await tool.may_decide(self._instances, self._threads.run, principal, request)
        except Exception:  # a boundary: the function is the app's, and may raise anything
            log.error("%s: its `approver` failed: nobody decides by that", tool.where, exc_info=True)
            return False
        if answer is not True and answer is not False:
            log.error("%s: its `approver` returned %r, which is no bool: nobody decides by that", tool.where, answer)
        return answer is True

    def _tool(self, view: CallView) -> ToolDefinition | None:
        if parse_call_id(view.call.id) != (view.run_id, view.call.turn, view.call.n):  # of a run below, another agent's
            return self._catalog.tools.get(view.call.tool)
        agent = self._catalog.of_run(view.agent)
        return None if agent is None else agent.tool(view.call.tool)
