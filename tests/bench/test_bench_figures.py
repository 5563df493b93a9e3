"""What is made of measured times: percentiles, spreads, comparisons, plots; and how peers are read."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from amoxi_py.errors import CommandRefused
from amoxi_py.testing.bench.comparison import compare
from amoxi_py.testing.bench.figures import Times, times_of
from amoxi_py.testing.bench.outcome import (
    MemoryRow,
    Outcome,
    SoakRow,
    SweepRow,
    begin_outcome,
    read_outcome,
    write_outcome,
)
from amoxi_py.testing.bench.peer import find_peer, read_peer
from amoxi_py.testing.bench.plot import plot
from amoxi_py.testing.bench.profile import Profile
from amoxi_py.testing.bench.soak import growth_of
from amoxi_py.testing.bench.sweep import median_of
from amoxi_py.testing.bench.tables import compared_lines, ratio_lines, sweep_line
from amoxi_py.testing.bench.usage import Usage, usage_of

SVG = "{http://www.w3.org/2000/svg}"


def row(clients: int = 64, *, server: str = "amoxi", rate: float = 30.0, p95: float = 100.0) -> SweepRow:
    times = Times(count=100, p50=90.0, p95=p95, p99=p95 + 5, longest=p95 + 9)
    return SweepRow(
        server=server,
        clients=clients,
        ideal=clients / 2.04,
        turns_per_s=rate,
        ttft=times,
        turn=times,
        cpu_ms=2.0,
        rss=100_000_000,
        errors={},
        samples={},
        refused=0,
        most_at_provider=clients,
    )


def outcome(*rows: SweepRow, workers: int = 2) -> Outcome:
    made = begin_outcome(profile=Profile(), app="", workers=workers, store="file", window_s=16.0)
    made.sweep = list(rows)
    return made


def test_percentiles_are_values_that_so_many_do_not_exceed() -> None:
    times = times_of([number / 1000 for number in range(100, 0, -1)])
    assert (times.count, times.p50, times.p95, times.p99, times.longest) == (100, 50.0, 95.0, 99.0, 100.0)
    few = times_of([0.003, 0.001, 0.002])
    assert (few.p50, few.p95, few.p99) == (2.0, 3.0, 3.0)
    assert times_of([]) == Times(count=0, p50=None, p95=None, p99=None, longest=None)


def test_of_repeated_measurements_the_median_is_told_with_the_spread_and_all_errors() -> None:
    tries = [row(rate=30.0, p95=110), row(rate=10.0, p95=300), row(rate=31.0, p95=100)]
    tries[1] = msgspec.structs.replace(tries[1], errors={"timeout": 2}, refused=3)
    found = median_of(tries)
    assert found.turns_per_s == 30.0
    assert found.spread == {"turns_per_s": (10.0, 31.0), "turn_p95": (100.0, 300.0)}
    assert found.errors == {"timeout": 2}
    assert found.refused == 3
    assert "(10.0 to 31.0/s)" in sweep_line(found)


def test_what_grew_by_over_a_quarter_is_named() -> None:
    before = outcome(row(64), row(256))
    worse = msgspec.structs.replace(row(64), cpu_ms=2.6, rss=124_000_000)
    compared = compare(outcome(worse, row(512)), before)
    assert {(one.where, one.figure) for one in compared if one.grew} == {("c=64", "CPU per turn, ms")}
    assert len(compared) == 4
    slower = compare(outcome(row(64, p95=126)), before)
    assert [one.figure for one in slower if one.grew] == ["turn p95, ms", "first word p95, ms"]
    assert not any(one.grew for one in compare(outcome(row(64, p95=125)), before))


def test_memory_is_compared_too() -> None:
    def probed(during: int) -> Outcome:
        made = outcome()
        numbers = {"clients": 100, "before": 50_000_000, "after": 51_000_000, "ttl_s": 10, "refused": 0}
        made.memory = [MemoryRow(during=during, errors={}, **numbers)]
        return made

    assert [one.grew for one in compare(probed(90_000_000), probed(60_000_000))] == [True]
    assert [one.grew for one in compare(probed(61_000_000), probed(60_000_000))] == [False]


def test_a_figure_that_is_there_no_more_has_grown() -> None:
    nothing = msgspec.structs.replace(row(64), turn=times_of([]), ttft=times_of([]), cpu_ms=None, turns_per_s=0.0)
    compared = compare(outcome(nothing), outcome(row(64)))
    assert [one.figure for one in compared if one.grew] == ["turn p95, ms", "first word p95, ms", "CPU per turn, ms"]
    assert next(iter(compared_lines(compared))) == "GREW  c=64, turn p95, ms: 100 -> inf (+inf%)"


def test_what_measured_something_else_is_not_compared() -> None:
    with pytest.raises(CommandRefused, match="'workers' is 1 now, and was 2 then"):
        compare(outcome(row(), workers=1), outcome(row()))
    with pytest.raises(CommandRefused, match="no count of clients"):
        compare(outcome(row(64)), outcome(row(256)))


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    written = outcome(msgspec.structs.replace(row(), spread={"turns_per_s": (1.0, 2.0)}))
    write_outcome(written, file)
    assert read_outcome(file) == written
    file.write_text('{"version": 1}')
    with pytest.raises(CommandRefused, match="is not what `amoxi bench --out` writes"):
        read_outcome(file)
    with pytest.raises(CommandRefused, match="cannot be read"):
        read_outcome(tmp_path / "none.json")


def test_the_plot_has_each_server_and_the_ideal() -> None:
    drawn = ET.fromstring(plot(outcome(row(1), row(64), row(1, server="a <peer>"), row(64, server="a <peer>"))))
    lines = drawn.findall(f"{SVG}polyline")
    assert len(lines) == 3 + 5  # rates of both and the ideal; p50 and p95 of both and the ideal
    assert all(len((line.get("points") or "").split()) == 2 for line in lines)
    assert "a <peer> p95 (dashed)" in [text.text for text in drawn.findall(f"{SVG}text")]
    ET.fromstring(plot(outcome(msgspec.structs.replace(row(1), turn=times_of([]), ttft=times_of([])))))


def test_ratios_are_told_beside_each_peer_of_the_same_count() -> None:
    rows = [row(64, rate=30.0), row(64, server="peer", rate=15.0), row(256, server="peer")]
    assert [*ratio_lines(rows)] == [
        "amoxi / peer, c=64: 2.00 of its turns/s, 1.0 times its CPU per turn, turn p50 +0 ms"
    ]


def test_a_soak_that_grows_is_told() -> None:
    def part(number: int, rss: int, stored: float) -> SoakRow:
        times = times_of([0.1])
        return SoakRow(
            number=number,
            seconds=60,
            clients=5,
            turns_per_s=2,
            ttft=times,
            turn=times,
            cpu_ms=2,
            rss=rss,
            store_bytes=stored,
            errors={},
        )

    grown = {check.name: check.ok for check in growth_of([part(n, 100 + 20 * n, 5000) for n in range(6)])}
    assert grown.pop("growth of memory") is False
    assert len(grown) == 4
    assert all(grown.values())
    assert [check.name for check in growth_of([part(0, 1, 1)])] == ["errors"]


PS = """#!/bin/sh
echo '    1     0  4000   2-01:00:00'
echo '   70     1  1000   0:01.50'
echo '   71    70   500   1:02.25'
echo '   72    71   500  10:00:00'
"""


def test_where_there_is_no_proc_usage_is_what_ps_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ps").write_text(PS)
    (tmp_path / "ps").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert usage_of(70) == Usage(cpu_s=1.5 + 62.25 + 36_000, rss=2000 * 1024, processes=3)
    assert usage_of(1).cpu_s == 2 * 86_400 + 3_600 + 1.5 + 62.25 + 36_000


def test_usage_counts_this_process() -> None:
    used = usage_of(os.getpid())
    assert used.processes >= 1
    assert used.rss > 10_000_000
    assert used.cpu_s > 0
    assert usage_of(2**30).processes == 0


PEER = """\
# /// script
# requires-python = ">=3.11"
# dependencies = ["starlette"]
#
# [tool.amoxi-bench]
# path = "/chat"
# body = '{"message": "hello {n}"}'
# first = "tok0"
# end = "[DONE]"
# ///
print("a server")
"""


def test_a_peer_is_a_file_that_says_how_it_is_talked_to(tmp_path: Path) -> None:
    file = tmp_path / "tiny.py"
    file.write_text(PEER)
    peer = read_peer(file, tmp_path / "environments")
    assert (peer.name, peer.dependencies, peer.target.path) == ("tiny", ("starlette",), "/chat")
    assert peer.python == str(tmp_path / "environments" / "tiny" / "bin" / "python")
    assert find_peer("passthrough").target.path == "/chat"


def test_a_peer_may_need_packages_of_npm_too(tmp_path: Path) -> None:
    file = tmp_path / "tiny.py"
    file.write_text(
        PEER.replace("# [tool.amoxi-bench]", '# [tool.npm]\n# dependencies = ["tiny@1.0"]\n# [tool.amoxi-bench]')
    )
    assert read_peer(file).npm == ("tiny@1.0",)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("[tool.amoxi-bench]", "[tool]\n# npm = 1\n# [tool.amoxi-bench]"), "does not fit: .*int"),
        (("# /// script", "# script"), "no '# /// script' block"),
        (('path = "/chat"', 'path = "/chat'), "is no TOML"),
        (("[tool.amoxi-bench]", "[tool.other]"), r"no \[tool.amoxi-bench\]"),
        (('first = "tok0"', 'frist = "tok0"'), "does not fit: .*frist"),
        (("", ""), "is not installed.*bench/peers/install.py"),
    ],
)
def test_a_peer_that_cannot_be_started_is_refused_with_the_way_out(
    tmp_path: Path, change: tuple[str, str], reason: str
) -> None:
    file = tmp_path / "tiny.py"
    file.write_text(PEER.replace(*change) if change[0] else PEER)
    with pytest.raises(CommandRefused, match=reason):
        find_peer(str(file), tmp_path / "environments")
    with pytest.raises(CommandRefused, match="cannot be read"):
        find_peer(str(tmp_path / "none.py"))


def test_the_peers_of_this_repository_can_be_read() -> None:
    files = sorted((Path(__file__).parents[2] / "bench" / "peers").glob("*.py"))
    peers = [read_peer(file) for file in files if file.name != "install.py"]
    assert all(peer.dependencies or peer.npm for peer in peers)
