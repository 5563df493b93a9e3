"""The agent card: who this app is to other agents, made of its declarations; one skill for each agent.

Everybody may read it, so it names no agent that not everybody may use; the extended one is for one caller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from functools import lru_cache
from urllib.parse import urlsplit

from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from amoxi_py.declare.definitions import AgentDefinition, Catalog
from amoxi_py.domain.addresses import LOCAL_NAMES
from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.surfaces.a2a.context import V0_3, V1_0, base_of
from amoxi_py.surfaces.a2a.settings import PATH, A2aSettings
from amoxi_py.surfaces.a2a.signing import Signer
from amoxi_py.surfaces.problem import problem

CARD_PATH = AGENT_CARD_WELL_KNOWN_PATH
OUTPUT_MODES = ("text/plain", "application/json")
INPUT_MODES = (*OUTPUT_MODES, "image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")

_JSON_RPC, _REST = "JSONRPC", "HTTP+JSON"
_INTERFACES = ((_JSON_RPC, V1_0), (_JSON_RPC, V0_3), (_REST, V1_0), (_REST, V0_3))
_BEARER = "bearer"
_CACHED = "public, max-age=300"
_ADDRESSES = 16  # who asks by any other name of the server makes a card for it


def agents_for_all(catalog: Catalog) -> list[AgentDefinition]:
    """Return the agents that every caller may use, in the order of their names."""
    found = (agent for agent in catalog.agents.values() if agent.expose and agent.allow is None)
    return sorted(found, key=lambda agent: agent.name)


def extended_card(engine: Engine, settings: A2aSettings, principal: Principal, base: str) -> pb.AgentCard:
    """Return the card with what one caller may use; `base` is the public address of the server with its prefix."""
    return make_card(settings, engine.agents(principal), base)


def make_card(settings: A2aSettings, agents: Iterable[AgentDefinition], base: str) -> pb.AgentCard:
    """Return the card of an app that has these agents to show."""
    agents = tuple(agents)
    bearer = pb.SecurityScheme(
        http_auth_security_scheme=pb.HTTPAuthSecurityScheme(
            scheme="Bearer", description="The token that you were given by whoever runs this server."
        )
    )
    return pb.AgentCard(
        name=settings.name,
        description=_description(settings, agents),
        version=settings.version,
        supported_interfaces=[
            pb.AgentInterface(url=f"{base}{PATH}", protocol_binding=binding, protocol_version=version)
            for binding, version in _INTERFACES
        ],
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        security_schemes={_BEARER: bearer},
        security_requirements=[pb.SecurityRequirement(schemes={_BEARER: pb.StringList()})],
        default_input_modes=INPUT_MODES,
        default_output_modes=OUTPUT_MODES,
        skills=[_skill(agent) for agent in agents],
    )


def _description(settings: A2aSettings, agents: tuple[AgentDefinition, ...]) -> str:
    """Return what the app is for: as it says itself, or as the agent that answers by default, or as all of them."""
    if settings.description:
        return settings.description
    chosen = [agent for agent in agents if agent.name == settings.default_agent] or agents
    return " ".join(agent.description for agent in chosen if agent.description) or settings.name


def _skill(agent: AgentDefinition) -> pb.AgentSkill:
    words = agent.name.replace("-", " ")
    return pb.AgentSkill(
        id=agent.name,
        name=words[:1].upper() + words[1:],
        description=agent.description or words,
        tags=words.split(),
        input_modes=INPUT_MODES,
        output_modes=OUTPUT_MODES,
    )


class CardRoute:
    """Answers everybody with the card that everybody may read."""

    def __init__(self, settings: A2aSettings, catalog: Catalog, signer: Signer | None) -> None:
        self._settings = settings
        self._catalog = catalog
        self._signer = signer
        self._made_at = datetime.now(UTC).replace(microsecond=0)
        self._cards = lru_cache(_ADDRESSES)(self._card)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(Request(scope))(scope, receive, send)

    def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            detail = "this address gives the agent card, and takes nothing"
            return problem(405, "method_not_allowed", detail, headers={"allow": "GET, HEAD"})
        body, etag = self._cards(base_of(self._settings, request))
        headers = {
            "cache-control": _CACHED,
            "etag": etag,
            "last-modified": format_datetime(self._made_at, usegmt=True),
            "vary": "Host",
        }
        if self._is_known(request, etag):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    def _card(self, base: str) -> tuple[bytes, str]:
        card = make_card(self._settings, agents_for_all(self._catalog), base)
        unsigned = encode_json(agent_card_to_dict(card)).encode("ascii")
        etag = f'W/"{hashlib.sha256(unsigned).hexdigest()[:32]}"'  # a signature is another one each time
        if self._signer is None or not self._is_ours(base):
            return unsigned, etag
        return encode_json(agent_card_to_dict(self._signer.sign(card, base))).encode("ascii"), etag

    def _is_ours(self, base: str) -> bool:
        """Whether an address is for certain one of this server, and not just what somebody has asked by."""
        try:
            return self._settings.public_url is not None or urlsplit(base).hostname in LOCAL_NAMES
        except ValueError:
            return False

    def _is_known(self, request: Request, etag: str) -> bool:
        known = request.headers.get("if-none-match")
        if known is not None:
            tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
            return "*" in tags or etag.removeprefix("W/") in tags
        try:
            since = parsedate_to_datetime(request.headers.get("if-modified-since", ""))
            return self._made_at <= since
        except (ValueError, TypeError):
            return False
