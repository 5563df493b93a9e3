"""Who is who: a sign-in with a session cookie, for the agents' routes as for the pages.

How often somebody may try a password is not the subject here; a proxy or a middleware has to bound it.
"""

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field, SecretStr
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request

from amoxi_py import NotAuthenticated, Principal, authenticate, configure, settings

from .people import check_password, find_person


@settings("desk")
class DeskSettings(BaseModel):
    """What an operator sets; DESK_SESSION_SECRET signs the cookies."""

    session_secret: SecretStr = Field(min_length=32)
    session_hours: int = Field(default=12, ge=1)
    https_only: bool = True


class Credentials(BaseModel):
    """What somebody signs in with."""

    login: str = Field(max_length=100)
    password: str = Field(max_length=200)


@configure
def add_sign_in(app: FastAPI, settings: DeskSettings) -> None:
    """Add the session, which is there for every route, and the routes that begin and end it."""
    app.add_middleware(
        SessionMiddleware,
        secret_key=settings.session_secret.get_secret_value(),
        session_cookie="desk_session",
        max_age=settings.session_hours * 3600,
        same_site="lax",
        https_only=settings.https_only,
    )

    @app.post("/login")
    def login(credentials: Credentials, request: Request) -> dict[str, object]:
        person = find_person(credentials.login)
        if not check_password(person, credentials.password) or person is None:
            raise HTTPException(401, "this login and password do not belong together")
        request.session.clear()
        request.session["login"] = credentials.login
        return {"name": person.name, "roles": person.roles}

    @app.post("/logout", status_code=204)
    def logout(request: Request) -> None:
        request.session.clear()


@authenticate
def who_asks(request: Request) -> Principal | None:
    """Say whose session it is; name and roles are those of now, not those of when it began."""
    login = request.session.get("login")
    if login is None:
        return None
    person = find_person(login)
    if person is None:
        raise NotAuthenticated("this account is closed")
    return Principal(id=login, name=person.name, roles=frozenset(person.roles))
