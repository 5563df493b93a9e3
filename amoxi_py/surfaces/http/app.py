"""The web app of the HTTP surface, and its routes for an app that is already there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.surfaces.http.agents import AgentRoutes
from amoxi_py.surfaces.http.approvals import ApprovalRoutes
from amoxi_py.surfaces.http.authentication import SignInFailed
from amoxi_py.surfaces.http.chat import ChatRoutes
from amoxi_py.surfaces.http.conversations import ConversationRoutes
from amoxi_py.surfaces.http.docs_page import add_docs_page
from amoxi_py.surfaces.http.door import Door
from amoxi_py.surfaces.http.every_answer import EveryAnswer
from amoxi_py.surfaces.http.files import FileRoutes
from amoxi_py.surfaces.http.health import HealthRoutes
from amoxi_py.surfaces.http.host_check import HostCheck
from amoxi_py.surfaces.http.memories import MemoryRoutes
from amoxi_py.surfaces.http.metrics import MetricsRoutes
from amoxi_py.surfaces.http.problems import STATUSES, problem_of
from amoxi_py.surfaces.http.questions import QuestionRoutes
from amoxi_py.surfaces.http.runs import RunRoutes

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_ROUTES = (
    AgentRoutes,
    RunRoutes,
    ApprovalRoutes,
    QuestionRoutes,
    ConversationRoutes,
    FileRoutes,
    MemoryRoutes,
    ChatRoutes,
    HealthRoutes,
    MetricsRoutes,
)


def build_http(door: Door, *, title: str = "amoxi_py", version: str = "0", lifespan: Lifespan | None = None) -> FastAPI:
    """Return an app with all routes of the door. The lifespan calls `door.open` when the engine has started.

    Every error of this app, also of routes that are added to it, is answered as a problem.
    """
    prefix = door.settings.prefix
    app = FastAPI(
        title=title,
        version=version,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=f"{prefix}/openapi.json" if door.settings.docs else None,
        docs_url=None,
        redoc_url=None,
    )
    add_routes(door, app.router)
    if door.settings.docs:
        add_docs_page(app, prefix)
    for kind in (HTTPException, RequestValidationError, SignInFailed, *STATUSES):
        app.add_exception_handler(kind, _answer)
    if door.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=door.settings.cors_origins,
            allow_credentials=True,
            allow_methods=["GET", "HEAD", "POST", "DELETE"],
            allow_headers=["*"],  # of named origins; the app's own sign-in may read a header that nobody knows here
            expose_headers=["Location", "Retry-After", "Mcp-Session-Id", "WWW-Authenticate", "X-Request-Id"],
        )
    app.add_middleware(HostCheck, settings=door.settings)
    app.add_middleware(EveryAnswer, settings=door.settings, responses=door.responses)
    return app


def add_routes(door: Door, router: APIRouter) -> None:
    """Add all routes of the door to an app's router; their errors are answered as problems by themselves."""
    for routes in _ROUTES:
        routes(door).add_to(router)


async def _answer(request: Request, error: Exception) -> Response:
    return problem_of(error, request)
