"""What another agent's developers paste to send the app its first message by A2A."""

from __future__ import annotations

import json
import re
import secrets
import shlex
from dataclasses import dataclass, replace

from amoxi_py.cli.address import local_url
from amoxi_py.cli.mcp_snippets import Place, Snippet
from amoxi_py.config.settings import Settings

_ENDING = "/a2a"
_CARD = "/.well-known/agent-card.json"
_TEXT = "What can you do for me?"


@dataclass(frozen=True, slots=True, kw_only=True)
class A2aPlace(Place):
    """Where an app is reached; `skill` is the agent that answers, or None where no message has to name one."""

    skill: str | None = None

    @property
    def base(self) -> str:
        """The address under which clients find the card."""
        return re.sub(rf"{_ENDING}/?$", "", self.url)


def a2a_url_of(settings: Settings) -> str:
    """Return where other agents reach the app."""
    server = settings.server
    root = server.public_url or local_url(server.host, server.port)
    return f"{root.rstrip('/')}{settings.ai.http.prefix or ''}{_ENDING}"


def a2a_snippets_for(place: A2aPlace) -> tuple[Snippet, ...]:
    """Return what to paste to try it out, and to build on."""
    return (
        Snippet(client="card", title="The agent card, which everybody may read", text=f"curl -s {place.base}{_CARD}"),
        Snippet(
            client="curl",
            title="A message (each needs a messageId of its own: the same one again is the same message)",
            text=_curl(place),
        ),
        Snippet(
            client="a2a-sdk",
            title=f"The same in Python: pip install a2a-sdk (reads ${place.variable})",
            text=_python(place),
        ),
    )


def _curl(place: A2aPlace) -> str:
    message = {"role": "ROLE_USER", "messageId": secrets.token_hex(8), "parts": [{"text": _TEXT}]}
    params = {"message": message} if place.skill is None else {"message": message, "metadata": {"skill": place.skill}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    headers = (f"Authorization: Bearer {place.token}", "Content-Type: application/json", "A2A-Version: 1.0")
    said = [word for header in headers for word in ("-H", header)]
    return shlex.join(["curl", "-s", place.url, *said, "-d", json.dumps(request)])


def _python(place: A2aPlace) -> str:
    skill = "" if place.skill is None else f'\n        request.metadata.update({{"skill": {json.dumps(place.skill)}}})'
    return f"""import asyncio, os, uuid

import httpx
from a2a.client import ClientConfig, create_client
from a2a.types import Message, Part, Role, SendMessageRequest


async def main() -> None:
    headers = {{"Authorization": f"Bearer {{os.environ['{place.variable}']}}"}}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        client = await create_client({json.dumps(place.base)}, ClientConfig(httpx_client=http))
        message = Message(role=Role.ROLE_USER, message_id=str(uuid.uuid4()), parts=[Part(text={json.dumps(_TEXT)})])
        request = SendMessageRequest(message=message){skill}
        async for event in client.send_message(request):
            print(event)


asyncio.run(main())"""


def with_skill(place: A2aPlace, settings: Settings) -> A2aPlace:
    """Return the same place with an agent that a message can name, where it must; without an app that is None."""
    from amoxi_py.app.declarations import read_declarations
    from amoxi_py.errors import AmoxiError

    if settings.ai.a2a.default_agent is not None:
        return place
    try:
        agents = read_declarations(settings).catalog.agents.values()
    except AmoxiError:
        return place
    names = sorted(agent.name for agent in agents if agent.expose and agent.allow is None)
    return replace(place, skill=names[0]) if len(names) > 1 else place
