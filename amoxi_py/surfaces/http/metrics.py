"""`/metrics`: what the process counts, for this machine and for callers with a token; nobody else needs to know.

A proxy on this machine makes everybody look near. So a request that came through one counts as a stranger's, whoever
the proxy says that its client is.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.errors import NotAuthenticated
from amoxi_py.surfaces.http.door import Door
from amoxi_py.surfaces.http.host_check import is_loopback
from amoxi_py.surfaces.http.problems import documented
from amoxi_py.surfaces.tokens import authorizations, bearer_token, caller_of_token

_OF_PROXIES = ("x-forwarded-", "forwarded", "x-real-ip", "via")


class MetricsRoutes:
    """The route for Prometheus; there is none where nothing is counted."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def add_to(self, router: APIRouter) -> None:
        """Add the route."""
        if self._door.settings.metrics is None:
            return
        self._door.add(
            router,
            "/metrics",
            self.metrics,
            known=False,
            tags=["health"],
            operation_id="metrics",
            response_class=Response,
            responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **documented(401)},
        )

    async def metrics(self, request: Request) -> Response:
        """Tell what this server counts, in the form that Prometheus reads."""
        self._refuse_strangers(request)
        page = self._door.settings.metrics
        assert page is not None, "the route is there because of it"
        body, media_type = await page(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type, "cache-control": "no-store"})

    def _refuse_strangers(self, request: Request) -> None:
        headers = authorizations(request.scope)
        token = bearer_token(headers)
        if token is not None and caller_of_token(token, self._door.settings.callers) is not None:
            return
        if headers:
            raise NotAuthenticated("the Authorization header holds no known bearer token")
        if not _is_near(request):
            raise NotAuthenticated(
                "the metrics are for this machine, and for callers with a token: set AI_API_CALLERS_PROMETHEUS to one, "
                "and send it as a bearer token"
            )


def _is_near(request: Request) -> bool:
    """Whether a program of this machine asks, by itself."""
    if any(name.startswith(_OF_PROXIES) for name in request.headers):
        return False
    return request.client is not None and is_loopback(request.client.host)
