"""The shop's database: two tables, and sessions, which the routes and the agents' tools take from the same place."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import ForeignKey, select
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

sessions = async_sessionmaker(expire_on_commit=False)


class Base(DeclarativeBase):
    """What all tables have in common."""


class Order(Base):
    """An order; its tenant is the shop that it was made in."""

    __tablename__ = "orders"

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(index=True)
    item: Mapped[str]
    cents: Mapped[int]
    address: Mapped[str]


class AddressChange(Base):
    """One change of an address: who made it, and under which key, which no other change can have."""

    __tablename__ = "address_changes"

    key: Mapped[str] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(ForeignKey("orders.id"))
    address: Mapped[str]
    by: Mapped[str]


@asynccontextmanager
async def open_database(path: Path) -> AsyncIterator[None]:
    """Connect the sessions for as long as the app lives, and put the demo's orders into a new database."""
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    sessions.configure(bind=engine)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with sessions.begin() as session:
            if await session.scalar(select(Order).limit(1)) is None:
                session.add_all(_demo_orders())
        yield
    finally:
        await engine.dispose()


def _demo_orders() -> list[Order]:
    return [
        Order(id="A-1001", tenant="acme", item="Trail backpack, 28 L", cents=8900, address="1 Oak Road"),
        Order(id="A-1002", tenant="acme", item="Camping stove", cents=5400, address="2 Elm Road"),
        Order(id="B-2001", tenant="birch", item="Rowing boat", cents=99000, address="3 Ash Road"),
    ]
