"""Where webhooks may go: never to what only this machine, or its network, should reach."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from amoxi_py.surfaces.a2a.posting import Poster, PostFailed
from amoxi_py.surfaces.a2a.push_allowed import Allowed, parse_allowed
from amoxi_py.surfaces.a2a.push_names import Names
from amoxi_py.surfaces.a2a.push_targets import TargetRefused, find_addresses, read_target

pytestmark = pytest.mark.anyio

PUBLIC = "https://agent.example.com/updates"
NAMES = {
    "agent.example.com": ["93.184.216.34"],
    "inside.example.com": ["10.1.2.3"],
    "half.example.com": ["93.184.216.34", "127.0.0.1"],
    "mapped.example.com": ["::ffff:10.0.0.1"],
    "six.example.com": ["2606:4700::1111"],
    "meta.example.com": ["169.254.169.254"],
    "empty.example.com": [],
}


async def named(host: str, port: int) -> Sequence[str]:
    return NAMES[host]


async def judge(url: str, allowed: Allowed, *, by_name: bool = True) -> Sequence[str]:
    parts = read_target(url, allowed)
    return await find_addresses(parts, allowed, named if by_name else Names().of("a2a:partner"))


@pytest.mark.parametrize(
    "url",
    [
        *("", "agent.example.com/updates", "//agent.example.com", "https://", "https:///x", "https://:443/x"),
        *("ftp://agent.example.com/x", "file:///etc/passwd", "gopher://agent.example.com", "javascript:alert(1)"),
        *("http://agent.example.com/x", "HTTP://agent.example.com/x"),
        *("https://ann:secret@agent.example.com/x", "https://@agent.example.com/x", "https://agent.example.com@x.y/"),
        *("https://agent.example.com:0/x", "https://agent.example.com:99999/x", "https://agent.example.com:x/"),
        *("https://agent.example.com/a b", "https://agent.example.com/\r\nx: y", "https://agent\t.example.com/"),
        *("https://agent.example.com\\@127.0.0.1/", "https://ägent.example.com/", "https://１２７.0.0.1/"),
        *("https://[::1/x", "https://agent.example.com/" + "x" * 2048, "https://agent.example.com/\x00"),
    ],
)
async def test_what_is_no_plain_https_url_is_refused_without_asking_for_its_host(url: str) -> None:
    with pytest.raises(TargetRefused):
        read_target(url, Allowed())


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("[::1]", "[::]", "[fe80::1]", "[fc00::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]"),
        *("[2002:7f00:1::]", "224.0.0.1", "255.255.255.255", "168.63.129.16"),
        *("2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0x7f.1", "localhost", "localhost."),
    ],
)
async def test_no_way_of_writing_an_address_leads_inside(host: str) -> None:
    with pytest.raises(TargetRefused):
        await judge(f"https://{host}/x", Allowed(), by_name=False)
    with pytest.raises(PostFailed) as failed:
        await Poster(Allowed(), Names()).post("a2a:partner", f"https://{host}/x", b"{}", {})
    assert failed.value.lasting


@pytest.mark.parametrize("name", ["inside", "half", "mapped", "meta"])
async def test_a_name_that_leads_inside_is_refused_also_when_it_leads_outside_too(name: str) -> None:
    with pytest.raises(TargetRefused):
        await judge(f"https://{name}.example.com/x", Allowed())


async def test_a_name_that_leads_nowhere_has_no_address() -> None:
    with pytest.raises(OSError):
        await judge("https://empty.example.com/x", Allowed())


async def test_public_hosts_may_be_told_over_https_at_any_port() -> None:
    assert await judge(PUBLIC, Allowed()) == ["93.184.216.34"]
    assert await judge("https://six.example.com:8443/?q=1", Allowed()) == ["2606:4700::1111"]
    assert await judge("https://AGENT.example.com./x", Allowed()) == ["93.184.216.34"]


async def test_what_the_operator_names_may_be_told_also_by_http() -> None:
    host = parse_allowed(["Inside.Example.com"])
    assert await judge("http://inside.example.com:9000/x", host) == ["10.1.2.3"]
    assert await judge("https://inside.example.com./x", host) == ["10.1.2.3"]
    with pytest.raises(TargetRefused):
        await judge("https://meta.example.com/x", host)
    place = parse_allowed(["inside.example.com:9000", "[::1]:9000"])
    assert place.names("::1", 9000)
    assert await judge("http://inside.example.com:9000/x", place)
    for url in ("http://inside.example.com/x", "https://inside.example.com/x", "http://inside.example.com:9001/x"):
        with pytest.raises(TargetRefused):
            await judge(url, place)


async def test_a_network_that_the_operator_names_holds_for_names_and_addresses() -> None:
    network = parse_allowed(["10.0.0.0/8", "::1/128"])
    assert await judge("http://inside.example.com/x", network) == ["10.1.2.3"]
    assert await judge("http://10.9.9.9/x", network, by_name=False) == ["10.9.9.9"]
    assert await judge("http://[::1]:1/x", network, by_name=False) == ["::1"]
    assert await judge(PUBLIC, network) == ["93.184.216.34"]
    for url in ("http://agent.example.com/x", "http://half.example.com/x", "https://meta.example.com/x"):
        with pytest.raises(TargetRefused):
            await judge(url, network)


@pytest.mark.parametrize(
    "entry",
    [
        "",
        " ",
        "https://x.example.com",
        "10.0.0.1/8",
        "x/y",
        "*.example.com",
        "x:0",
        "x:99999",
        "x:",
        "a b",
        "-x",
        "::1::",
    ],
)
def test_an_entry_that_names_nothing_is_told(entry: str) -> None:
    with pytest.raises(ValueError, match="'"):
        parse_allowed([entry])
