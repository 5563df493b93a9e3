"""What a person has allowed a program: one grant, and the codes and tokens that hang on it.

A grant is named by a family that only its refresh tokens know, so whoever shows one that does not hold any more had it
before: then the whole grant ends, but for a moment in which programs that share a token may all come with it. A code
that is used a second time ends the grant for an hour after the first. An access token knows the grant's id alone.
Nothing counts without its grant.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import Any

from amoxi_py.domain.principal import Principal
from amoxi_py.ports.records import group_of
from amoxi_py.surfaces.mcp.oauth.answers import OAuthError
from amoxi_py.surfaces.mcp.oauth.clients import DAY_S, Client
from amoxi_py.surfaces.mcp.oauth.keeping import Keeping, digest, kept_principal, new_secret, read_principal
from amoxi_py.surfaces.mcp.oauth.limits import Allowance
from amoxi_py.surfaces.mcp.oauth.settings import SCOPE
from amoxi_py.surfaces.tokens import Callers

CODE_LIFE_S = 60.0
ACCESS_LIFE_S = 3600.0
REFRESH_LIFE_S = 30 * DAY_S
TOGETHER_S = 120.0
"""How long a refresh token that was used gives tokens still, to a program's other parts or when an answer was lost."""
SPENT_LIFE_S = 3600.0
GRANT_LIFE_S = 90 * DAY_S
"""After it the person is asked anew, so that what the sign-in said of somebody is never older."""
_REFRESHES = 60
_REFRESHES_PER_S = 600.0
_MOST_AT_ONCE = 20
_MOST_SHOWN = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A grant as the person sees it; times are in seconds since 1970."""

    id: str
    client_name: str
    target: str
    created_at: float


class Grants:
    """All grants of the app."""

    def __init__(self, keeping: Keeping, callers: Callers) -> None:
        self._keeping = keeping
        self._callers = callers
        self._refreshes = Allowance("refreshes", _REFRESHES, _REFRESHES_PER_S)

    async def allow(
        self,
        client: Client,
        principal: Principal,
        *,
        redirect_uri: str,
        challenge: str,
        resource: str,
        target: str,
        token: str | None = None,
    ) -> str:
        """Begin a grant, and return the code for the client.

        `target` is what the person was shown of where it goes, `token` the digest of the caller's token that was given
        in place of a sign-in: the grant holds as long as that does.
        """
        code, salt = new_secret(), new_secret()
        grant = _grant_of(_family_of(code, salt))
        content = {
            "client": client.id,
            "client_name": client.name,
            "target": target,
            "resource": resource,
            "created_at": self._keeping.now(),
            "principal": kept_principal(principal),
            "token": token,
        }
        await self._keeping.keep("grant", grant, content, GRANT_LIFE_S, group=group_of(principal))
        told = {"client": client.id, "redirect_uri": redirect_uri, "challenge": challenge, "salt": salt}
        await self._keeping.keep("code", digest(code), told, CODE_LIFE_S, group=grant)
        return code

    async def exchange(self, client: Client, form: dict[str, str], resource: str | None) -> dict[str, Any]:
        """Give tokens for a code; `resource` is the address of this server, None when it may have any."""
        code = form.get("code")
        if code is None:
            raise OAuthError("invalid_request", "'code' is missing")
        kept = await self._spend(code)
        if kept is None:
            await self._end_spent(code, client)
            raise OAuthError("invalid_grant", "the code does not hold, or not any more")
        if kept["client"] != client.id:
            raise OAuthError("invalid_grant", "the code was given to another client")
        if form.get("redirect_uri", kept["redirect_uri"]) != kept["redirect_uri"]:
            raise OAuthError("invalid_grant", "'redirect_uri' is not the one that the code was sent to")
        verifier = form.get("code_verifier", "")
        if not hmac.compare_digest(_challenge_of(verifier), kept["challenge"]):
            raise OAuthError("invalid_grant", "'code_verifier' does not fit the code's challenge")
        return await self._tokens(_family_of(code, kept["salt"]), client, resource)

    async def refresh(self, client: Client, form: dict[str, str], resource: str | None) -> dict[str, Any]:
        """Give new tokens for a refresh token, which holds for a moment only then; `resource` as above."""
        token = form.get("refresh_token")
        if token is None:
            raise OAuthError("invalid_request", "'refresh_token' is missing")
        key = digest(token)
        kept = await self._keeping.find("refresh", key)
        used = None if kept is not None else await self._keeping.find("used", key)
        shown = kept or used
        if shown is not None and shown["client"] != client.id:
            raise OAuthError("invalid_grant", "the refresh token was given to another client")
        family = token.partition(".")[0]
        if shown is None:
            await self._end_family(family, client)
            raise OAuthError("invalid_grant", "the refresh token does not hold, or not any more")
        grant = _grant_of(family)
        self._refreshes.use_of(grant, "of this connection")
        tokens = await self._tokens(
            family, client, resource
        )  # first: a server that dies before the next line has taken nothing
        if kept is None:
            await self._forget_oldest(grant)
            return tokens
        # Before it is taken, so that whoever finds it taken finds this.
        await self._keeping.keep("used", key, {"client": client.id}, TOGETHER_S, group=grant)
        await self._keeping.take("refresh", key)
        return tokens

    async def principal_of(self, token: str, resource: str | None) -> Principal | None:
        """Return whose access token this is; None when it does not hold, or is for another resource."""
        grant, separator, _ = token.partition(".")
        if not separator or len(grant) != 32:
            return None
        kept, told = await asyncio.gather(
            self._keeping.find("access", digest(token)), self._keeping.find("grant", grant)
        )
        if kept is None or told is None or (resource is not None and told["resource"] != resource):
            return None
        principal = read_principal(told["principal"])
        return principal if told["token"] is None or self._is_token_of(principal, told["token"]) else None

    async def revoke(self, client: Client, token: str) -> None:
        """End a grant by its refresh token, or an access token alone; one of another client is left as it is."""
        key = digest(token)
        for kind in ("refresh", "used", "access"):
            kept = await self._keeping.find(kind, key)
            if kept is None or kept["client"] != client.id:
                continue
            if kind != "access":
                await self.end(_grant_of(token.partition(".")[0]))
            else:
                await self._keeping.take("access", key)

    async def connections(self, principal: Principal) -> list[Connection]:
        """Return what a person has allowed and is in use."""
        found = []
        for grant, told in await self._keeping.find_all("grant", group_of(principal), most=_MOST_SHOWN):
            if await self._keeping.find_all("refresh", grant):
                found.append(
                    Connection(
                        id=grant,
                        client_name=told["client_name"],
                        target=told["target"],
                        created_at=told["created_at"],
                    )
                )
        return sorted(found, key=lambda one: one.created_at)

    async def end_of(self, principal: Principal, grant: str) -> None:
        """End a person's own grant."""
        told = await self._keeping.find("grant", grant)
        if told is not None:
            owner = read_principal(told["principal"])
            if owner.owner_key == principal.owner_key:
                await self.end(grant)

    async def end_all_of(self, principal: Principal) -> int:
        """End all grants of a person; return how many there were."""
        count = 0
        while found := await self._keeping.find_all("grant", group_of(principal)):
            for grant, _ in found:
                await self.end(grant)
                count += 1
        return count

    async def end(self, grant: str) -> None:
        """End a grant and all that hangs on it."""
        await self._keeping.take("grant", grant)
        for kind in ("code", "spent", "access", "refresh", "used"):
            await self._keeping.forget(kind, grant)

    async def _spend(self, code: str) -> dict[str, Any] | None:
        """Return what hangs on a code, once; that it was used is kept before, so that a second user finds it."""
        key = digest(code)
        kept = await self._keeping.find("code", key)
        if kept is None:
            return None
        spent = {"client": kept["client"], "grant": _grant_of(_family_of(code, kept["salt"]))}
        await self._keeping.keep("spent", key, spent, SPENT_LIFE_S, group=spent["grant"])
        return await self._keeping.take("code", key)

    async def _end_spent(self, code: str, client: Client) -> None:
        spent = await self._keeping.find("spent", digest(code))
        if spent is not None and spent["client"] == client.id:
            await self.end(spent["grant"])

    async def _forget_oldest(self, grant: str) -> None:
        """Let a connection have a few refresh tokens at once, however often one is used in its last moment."""
        found = await self._keeping.find_all("refresh", grant)
        for key, _ in sorted(found, key=lambda one: one[1]["at"])[:-_MOST_AT_ONCE]:
            await self._keeping.take("refresh", key)

    async def _tokens(self, family: str, client: Client, resource: str | None) -> dict[str, Any]:
        grant = _grant_of(family)
        allowed = await self._keeping.find("grant", grant)
        if allowed is None:
            raise OAuthError("invalid_grant", "the connection has ended; the person must connect anew")
        if resource is not None and allowed["resource"] != resource:
            raise OAuthError("invalid_grant", "the connection is for another address; the person must connect anew")
        access, refresh = f"{grant}.{new_secret()}", f"{family}.{new_secret()}"
        told = {"client": client.id, "at": self._keeping.now()}
        await asyncio.gather(
            self._keeping.keep("access", digest(access), told, ACCESS_LIFE_S, group=grant),
            self._keeping.keep("refresh", digest(refresh), told, REFRESH_LIFE_S, group=grant),
        )
        return {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": int(ACCESS_LIFE_S),
            "refresh_token": refresh,
            "scope": SCOPE,
        }

    def _is_token_of(self, principal: Principal, token: str) -> bool:
        return bytes.fromhex(token) in self._callers.get(principal.id.removeprefix("mcp:"), ())

    async def _end_family(self, family: str, client: Client) -> None:
        grant = _grant_of(family)
        allowed = await self._keeping.find("grant", grant)
        if allowed is not None and allowed["client"] == client.id:
            await self.end(grant)


def _family_of(code: str, salt: str) -> str:
    """Return the family that a code begins; browsers' histories have the code, and the salt is gone with its use."""
    return digest(f"family\0{salt}\0{code}")


def _grant_of(family: str) -> str:
    return digest(f"grant\0{family}")[:32]


def _challenge_of(verifier: str) -> str:
    hashed = hashlib.sha256(verifier.encode("utf-8", "surrogatepass")).digest()
    return urlsafe_b64encode(hashed).decode().rstrip("=")
