"""The memory probe: what a server has before, with, and after so many conversations at once."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from amoxi_py.testing.bench.app_process import App, app_server
from amoxi_py.testing.bench.measuring import measure
from amoxi_py.testing.bench.outcome import MemoryRow
from amoxi_py.testing.bench.profile import Profile
from amoxi_py.testing.bench.provider_process import PlayedProvider

_TO_WARM_UP = 16


def probe_memory(
    app: App,
    provider: PlayedProvider,
    profile: Profile,
    place: Path,
    *,
    counts: Sequence[int],
    seconds: float,
    ttl_s: int,
    after_ttl_s: float = 15.0,
    on_row: Callable[[MemoryRow], None],
) -> list[MemoryRow]:
    """Measure each count of conversations on a server of its own, which has those of no other in memory.

    Args:
        app: What is started.
        provider: Whom it asks.
        profile: How it answers.
        place: A folder for stores.
        counts: Of conversations.
        seconds: How long they go on.
        ttl_s: How long idle conversations stay in memory (`ai.conversations.ttl-s`).
        after_ttl_s: So many seconds after that memory is looked at once more.
        on_row: Hears of each row when it is there.
    """
    rows = []
    for clients in counts:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            setting = {"AI_CONVERSATIONS_TTL_S": str(ttl_s)}
            with app_server(app, Path(folder), provider.url, **setting) as server:
                provider.answer_like(profile)
                few = server.load(_TO_WARM_UP, turn_s=profile.turn_s, warmup_s=0, window_s=2 * profile.turn_s)
                measure(server, few)
                time.sleep(ttl_s)  # what the warm-up has left in memory is no part of the base
                before = server.usage().rss
                during = measure(server, server.load(clients, turn_s=profile.turn_s, window_s=seconds))[0]
                time.sleep(ttl_s + after_ttl_s)
                after = server.usage().rss
        rows.append(
            MemoryRow(
                clients=clients,
                before=before,
                during=during.rss,
                after=after,
                ttl_s=ttl_s,
                errors=during.window.errors,
                refused=during.window.refused.count,
            )
        )
        on_row(rows[-1])
    return rows
