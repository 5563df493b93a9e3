"""The shop's API as it was before there were agents, and the one line that adds them: `uvicorn main:app`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import uuid4

from app.carrier import Carrier
from app.database import open_database, sessions
from app.orders import OrderProblem, OrderView, orders_of, send_elsewhere
from app.people import BadToken, Person, make_token, read_token, sign_in
from app.settings import ShopSettings
from fastapi import Body, Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.security import OAuth2PasswordBearer, OAuth2PasswordRequestForm
from sqlalchemy.ext.asyncio import AsyncSession

from amoxi_py import install


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the database before the agents start, and close it after they have stopped."""
    async with open_database(app.state.amoxi.get(ShopSettings).database):
        yield


app = FastAPI(title="Shop API", lifespan=lifespan)
install(app, prefix="/ai")


@app.exception_handler(OrderProblem)
async def tell_problem(request: Request, problem: OrderProblem) -> JSONResponse:
    """Answer in the shop's own form."""
    return JSONResponse({"problem": str(problem)}, status_code=409)


async def a_session() -> AsyncIterator[AsyncSession]:
    """Give a route a session of its own."""
    async with sessions.begin() as session:
        yield session


def the_settings(request: Request) -> ShopSettings:
    """Give a route the settings that the agents have too."""
    return request.app.state.amoxi.get(ShopSettings)


def the_carrier(request: Request) -> Carrier:
    """Give a route the singleton that the tools have too."""
    return request.app.state.amoxi.get(Carrier)


Settings = Annotated[ShopSettings, Depends(the_settings)]
Session = Annotated[AsyncSession, Depends(a_session, scope="function")]  # committed before the answer goes out


def who_asks(token: Annotated[str, Depends(OAuth2PasswordBearer("token"))], settings: Settings) -> Person:
    """Give a route the person whose token came with the request."""
    try:
        return read_token(token, settings)
    except BadToken as problem:
        raise HTTPException(401, str(problem), {"www-authenticate": "Bearer"}) from problem


SignedIn = Annotated[Person, Depends(who_asks)]


@app.post("/token")
def token(form: Annotated[OAuth2PasswordRequestForm, Depends()], settings: Settings) -> dict[str, str]:
    """Sign in."""
    person = sign_in(form.username, form.password)
    if person is None:
        raise HTTPException(401, "this login and password do not belong together")
    return {"access_token": make_token(person, settings), "token_type": "bearer"}


@app.get("/orders")
async def orders(person: SignedIn, session: Session) -> list[OrderView]:
    """List the orders of one's shop."""
    return await orders_of(session, person.tenant)


@app.put("/orders/{order_id}/address")
async def change_address(
    order_id: str,
    address: Annotated[str, Body(embed=True, min_length=5, max_length=200)],
    person: SignedIn,
    session: Session,
    carrier: Annotated[Carrier, Depends(the_carrier)],
) -> OrderView:
    """Change the address that an order goes to; the agents' tool goes by the same rules."""
    by, key = f"user:{person.login}", uuid4().hex
    return await send_elsewhere(session, carrier, person.tenant, order_id, address, by=by, key=key)
