"""The tools: what runs where, and a deploy, which is never made twice and in production never alone."""

from typing import Annotated

from pydantic import BaseModel, Field

from amoxi_py import (
    ApprovalRequest,
    Done,
    NotDone,
    Principal,
    SyncToolContext,
    ToolError,
    Unknown,
    singleton,
    tool,
)

from .releases import Releases
from .sign_in import OpsSettings

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", description="The service, e.g. checkout")]
Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$", description="The version, e.g. 1.4.2")]


class Service(BaseModel):
    """A service, what of it is live, and what could be."""

    name: str
    production: bool
    current: str | None
    versions: list[str]


class Deployed(BaseModel):
    """What became of a deploy."""

    service: str
    version: str


def four_eyes(principal: Principal, approval: ApprovalRequest) -> bool:
    """Let another person decide than the one who asked, and only one who is on call."""
    return "on-call" in principal.roles and principal.id != approval.requested_by.id


@singleton
class DeployTools:
    """Tools about releases."""

    def __init__(self, releases: Releases, settings: OpsSettings) -> None:
        self.releases = releases
        self.production = frozenset(settings.production)

    @tool(read_only=True)
    def list_services(self) -> list[Service]:
        """List the services with their versions, and which of these is live."""
        return [
            Service(
                name=name,
                production=self.is_production(name),
                current=self.releases.current(name),
                versions=self.releases.versions(name),
            )
            for name in self.releases.services()
        ]

    def is_production(self, service: str) -> bool:
        """Whether a deploy of this service has to be approved."""
        return service in self.production

    def what_happened(self, service: str, version: str, ctx: SyncToolContext) -> Done | NotDone | Unknown:
        """Look what became of a deploy that was interrupted. This only looks, and may be asked again."""
        history = [entry for entry in self.releases.history() if entry.service == service]
        if all(entry.key != ctx.call_id for entry in history):
            return NotDone()
        current = self.releases.current(service)
        if history[-1].key == ctx.call_id and current == version:
            return Done(Deployed(service=service, version=version))
        return Unknown(
            f"the deploy was begun; the last one in the history is {history[-1].version} by {history[-1].by}, "
            f"and {current} is live"
        )

    # Not idempotent: taken up again hours later, it would put an old version over the one that came after it.
    @tool(needs_approval=is_production, approver=four_eyes, reconcile=what_happened)
    def deploy(self, service: Name, version: Version, ctx: SyncToolContext) -> Deployed:
        """Deploy a version of a service. In production somebody else who is on call has to approve it."""
        if version not in self.releases.versions(service):
            raise ToolError(f"There is no version {version} of {service}.")
        if not self.releases.deploy(service, version, by=ctx.principal.id, key=ctx.call_id):
            raise RuntimeError(f"the deploy {ctx.call_id!r} was begun twice")
        return Deployed(service=service, version=version)
