"""`amoxi start` whose streams break their silence every 0.3 s, so that a test need not wait for 15."""

from __future__ import annotations

import sys
from dataclasses import replace

from amoxi_py.app import web
from amoxi_py.cli.program import main

plain = web.http_settings_of
web.http_settings_of = lambda settings: replace(plain(settings), heartbeat=0.3)
main(["start", "--workers", "1", *sys.argv[1:]])
