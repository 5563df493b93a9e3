"""A store that is a file has no database to lend: it says so, and what would be needed."""

from __future__ import annotations

from typing import Any

import pytest

from amoxi_py.domain.tool_call import StepRecord
from amoxi_py.errors import InvalidRequest
from amoxi_py.ports.transactions import StepPlace

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("fresh_data", ["sqlite"], indirect=True)]


async def test_a_file_lends_no_connection(world: Any) -> None:
    lease = await world.start(await world.worker())
    worked: list[object] = []

    async def work(connection: object) -> StepRecord:
        worked.append(connection)
        return StepRecord(name="pay", value="1")

    with pytest.raises(InvalidRequest, match=r"set 'ai\.store\.type' to 'postgres'") as refused:
        await world.store.commit_step(StepPlace(lease=lease, turn=1, n=0, name="pay"), work, threaded=False)
    assert (refused.value.code, worked) == ("transactions_need_postgres", [])
