"""O15: nginx as docs/guides/production.md sets it up, in front of `amoxi start`: streams, cookies, who is believed."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from processes import clean_environment, free_port

pytestmark = pytest.mark.crash

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "production.md"
PROGRAM = Path(__file__).parent / "proxied_program.py"
SYSTEM_FOLDERS = f"/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}"
SITE = "shop.example.com"
READ_TIMEOUT_S = 1
PROXY, CLIENT = "127.0.0.1", "127.0.0.2"
KETTLE = {
    "app/__init__.py": "",
    "app/kettle.py": '''
import asyncio
from pathlib import Path
from amoxi_py import agent, configure, tool
from starlette.requests import Request


@tool(idempotent=True)
async def boil_water() -> str:
    """Boil water, until somebody takes it."""
    while not Path("taken").exists():
        await asyncio.sleep(0.02)
    return "it boils"


@agent(tools=[boil_water])
class Kettle:
    """You boil water."""


@configure
def add_page(app):
    @app.get("/who")
    async def who(request: Request):
        return {"client": request.client.host, "scheme": request.url.scheme}
''',
}


def certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SITE)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, SHA256())
    )
    (folder / "shop.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "shop.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def site_of_the_page(port: int, upstream: int, folder: Path, **changes: str) -> str:
    """Return the settings for nginx that the page shows, with the places of a test."""
    [block] = re.findall(r'```nginx title="shop.conf"\n(.*?)```', PAGE.read_text("utf-8"), re.DOTALL)
    places = {
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        "127.0.0.1:8080": f"127.0.0.1:{upstream}",
        "/etc/ssl/shop": str(folder / "shop"),
        **changes,
    }
    for shown, here in places.items():
        assert shown in block, shown
        block = block.replace(shown, here)
    return block


class Site:
    """The site as a browser meets it: by https, at its name."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._trust = ssl.create_default_context()
        self._trust.check_hostname = False
        self._trust.verify_mode = ssl.CERT_NONE
        self.cookie = ""

    def ask(self, path: str, body: Any = None, **headers: str) -> HTTPResponse:
        request = urllib.request.Request(
            f"https://127.0.0.1:{self._port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"host": SITE, "content-type": "application/json", "cookie": self.cookie, **headers},
        )
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=60, context=self._trust)
        return answer

    def ask_from(self, address: str, path: str, **headers: str) -> Any:
        """Return what is answered to somebody at another address."""
        link = HTTPSConnection("127.0.0.1", self._port, timeout=60, context=self._trust, source_address=(address, 0))
        with closing(link):
            link.request("GET", path, headers={"host": SITE, **headers})
            return json.loads(link.getresponse().read())


@pytest.fixture
def site(app_folder: Any, tmp_path: Path) -> Iterator[Callable[..., tuple[Site, Path]]]:
    """Start the app and nginx before it: `site({"server.key": value})` gives the site and the app's folder."""
    started: list[subprocess.Popen[bytes]] = []

    def start(trusted: str = "127.0.0.1") -> tuple[Site, Path]:
        settings = {
            "server": {"public-url": f"https://{SITE}", "trusted-proxies": trusted},
            "ai": {"http": {"anonymous": True}},
        }
        folder = app_folder(KETTLE, settings)
        port, upstream = free_port(), free_port()
        certificate(tmp_path)
        changes = {"proxy_read_timeout 330s": f"proxy_read_timeout {READ_TIMEOUT_S}s"}
        shown = site_of_the_page(port, upstream, tmp_path, **changes)
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
            f"events {{}}\nhttp {{ access_log off; client_body_temp_path {tmp_path}/b; proxy_temp_path {tmp_path}/p;\n"
            f"fastcgi_temp_path {tmp_path}/f; uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;\n{shown}}}\n"
        )
        environ = clean_environment({"SERVER_PORT": str(upstream)})
        nginx = shutil.which("nginx", path=SYSTEM_FOLDERS)
        assert nginx, "nginx is not here: install the package 'nginx', or run: python3 dev.py test"
        with (tmp_path / "log").open("wb") as log:
            server = [sys.executable, str(PROGRAM)]
            started.append(subprocess.Popen(server, cwd=folder, env=environ, stdout=log, stderr=log))
            started.append(subprocess.Popen([nginx, "-c", tmp_path / "nginx.conf"], stdout=log, stderr=log))
        site = Site(port)
        deadline = time.monotonic() + 60
        while True:
            try:
                site.ask("/health/ready").close()
                return site, folder
            except OSError:
                log_text = (tmp_path / "log").read_text()
                assert time.monotonic() < deadline, log_text
                assert all(process.poll() is None for process in started), log_text
                time.sleep(0.05)

    yield start
    for process in started:
        process.send_signal(signal.SIGKILL)
        process.wait(30)


class Compressed:
    """A compressed stream, piece by piece as it comes."""

    def __init__(self, answer: HTTPResponse) -> None:
        assert answer.headers["content-encoding"] == "gzip"
        self._answer = answer
        self._plain = zlib.decompressobj(wbits=31)
        self.text = ""

    def read(self) -> None:
        piece = self._answer.read1(65536)
        assert piece, f"the stream has ended:\n{self.text}"
        self.text += self._plain.decompress(piece).decode()

    def read_until(self, text: str) -> None:
        while text not in self.text:
            self.read()


def test_a_compressed_stream_comes_through_at_once_and_stays_open_longer_than_the_proxy_waits(
    site: Callable[..., tuple[Site, Path]],
) -> None:
    shop, folder = site()
    with shop.ask("/agents/kettle/runs", {"message": "boil water"}) as answer:
        run = json.loads(answer.read())["id"]
        shop.cookie = answer.headers["set-cookie"].partition(";")[0]
        assert "; Secure" in answer.headers["set-cookie"]
    with shop.ask(f"/runs/{run}/events", **{"accept-encoding": "gzip"}) as answer:
        stream = Compressed(answer)
        stream.read_until("event: tool.called")
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < 2.5 * READ_TIMEOUT_S:  # nginx would have given up by now
            stream.read()
        assert "tool.completed" not in stream.text
        (folder / "taken").touch()
        stream.read_until("event: run.completed")


@pytest.mark.parametrize(
    ("trusted", "scheme", "client"),
    [(PROXY, "https", CLIENT), ("10.0.0.0/8", "http", PROXY)],
)
def test_what_the_proxy_says_counts_where_it_is_trusted_and_what_a_client_says_never_does(
    site: Callable[..., tuple[Site, Path]], trusted: str, scheme: str, client: str
) -> None:
    shop, _ = site(trusted)
    forged = {"x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "ftp"}
    assert shop.ask_from(CLIENT, "/who", **forged) == {"client": client, "scheme": scheme}
