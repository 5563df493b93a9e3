"""Singletons are made once, in order, entered and left in reverse, and given by type."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from amoxi_py import singleton
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import OpenInstances, open_instances
from amoxi_py.errors import DeclarationError, InstanceFailed

LOG: list[str] = []


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    LOG.clear()


@singleton
class Database:
    def __init__(self) -> None:
        LOG.append("make database")

    async def __aenter__(self) -> str:
        LOG.append("enter database")
        return "not the instance"

    async def __aexit__(self, *error: object) -> None:
        LOG.append("leave database")


@singleton
class Cache:
    def __init__(self, database: Database, size: int = 5, *, spare: Sequence[int] | None = None) -> None:
        LOG.append("make cache")
        self.database, self.size, self.spare = database, size, spare

    def __enter__(self) -> Cache:
        LOG.append("enter cache")
        return self

    def __exit__(self, *error: object) -> None:
        LOG.append("leave cache")


@singleton
@dataclass
class Shop:
    cache: Cache
    database: Database | None


def test_each_is_made_once_and_left_in_reverse_order() -> None:
    declarations = build_declarations([Shop, Cache, Database])

    async def main() -> OpenInstances:
        async with open_instances(declarations.singletons) as instances:
            LOG.append("work")
            return instances

    instances = asyncio.run(main())
    assert LOG == [
        "make database",
        "enter database",
        "make cache",
        "enter cache",
        "work",
        "leave cache",
        "leave database",
    ]
    shop = instances.get(Shop)
    assert shop.cache is instances.get(Cache)
    assert shop.database is shop.cache.database is instances.get(Database)
    assert (shop.cache.size, shop.cache.spare) == (5, None)


def test_what_a_singleton_asks_for_is_found_without_being_named() -> None:
    assert build_declarations([Shop]).singletons == (Shop, Cache, Database)


def test_a_ready_value_takes_the_place_of_a_singleton_and_of_what_it_needs() -> None:
    class FakeCache:
        size = 1

    class NotThere: ...

    @singleton
    class Needy:
        def __init__(self, missing: NotThere) -> None: ...

    fake = FakeCache()

    async def main() -> Any:
        values = {Cache: fake, Database: None, Needy: 5}
        async with open_instances([Shop, Cache, Needy], values) as instances:
            return instances.get(Shop).cache, instances.get(Cache), instances.get(Needy)

    assert asyncio.run(main()) == (fake, fake, 5)
    assert LOG == []


def test_one_that_fails_to_open_is_named_and_those_that_were_entered_are_left() -> None:
    @singleton
    class Broken:
        def __init__(self, cache: Cache) -> None:
            raise ConnectionError("no bank")

    async def main() -> None:
        async with open_instances([Broken]):
            LOG.append("work")

    with pytest.raises(
        InstanceFailed, match=r"singleton '.*Broken' failed to open: ConnectionError: no bank$"
    ) as failed:
        asyncio.run(main())
    assert isinstance(failed.value.__cause__, ConnectionError)
    assert LOG[-3:] == ["enter cache", "leave cache", "leave database"]


def test_those_that_fail_to_close_are_named_and_all_others_are_left(caplog: pytest.LogCaptureFixture) -> None:
    @singleton
    class Broken:
        def __init__(self, cache: Cache) -> None: ...

        async def __aenter__(self) -> Broken:
            return self

        async def __aexit__(self, *error: object) -> None:
            raise ConnectionError("no bank\nand more")

    @singleton
    class Exiting:
        def __init__(self, broken: Broken) -> None: ...

        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None:
            sys.exit("enough")

    async def main() -> None:
        async with open_instances([Exiting]):
            pass

    with pytest.raises(InstanceFailed) as failed:
        asyncio.run(main())
    exiting, broken = str(failed.value).splitlines()
    assert exiting.endswith("Exiting' failed to close: SystemExit: enough")
    assert broken.endswith("failed to close: ConnectionError: no bank")
    assert LOG[-2:] == ["leave cache", "leave database"]
    assert exiting in caplog.text
    places = re.findall(r'File "(.+)", line', caplog.text)
    assert places
    assert set(places) == {__file__}, "only the app's own frames are told"


def test_an_error_of_the_work_is_told_although_one_fails_to_close() -> None:
    @singleton
    class Broken:
        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None:
            raise ConnectionError("no bank")

    async def main() -> None:
        async with open_instances([Broken]):
            raise RuntimeError("work")

    with pytest.raises(RuntimeError, match="work"):
        asyncio.run(main())


def test_all_are_left_when_the_work_fails() -> None:
    async def main() -> None:
        async with open_instances([Cache]):
            raise RuntimeError("work")

    with pytest.raises(RuntimeError, match="work"):
        asyncio.run(main())
    assert LOG[-2:] == ["leave cache", "leave database"]


def test_something_that_is_missing_is_told_before_anything_is_made() -> None:
    class Unmarked: ...

    @singleton
    class Needy:
        def __init__(self, cache: Cache, unmarked: Unmarked) -> None: ...

    async def main() -> None:
        async with open_instances([Needy]):
            raise AssertionError("it was made")

    with pytest.raises(DeclarationError, match="Unmarked"):
        asyncio.run(main())
    assert LOG == []
    assert build_declarations([Needy], provided=[Unmarked]).singletons == (Needy, Cache, Database)


def test_an_unknown_type_is_a_clear_error() -> None:
    with pytest.raises(LookupError, match="nothing of type 'Shop' was made"):
        OpenInstances({}).get(Shop)
