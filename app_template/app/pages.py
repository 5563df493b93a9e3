"""The pages /assistant and /support-agent: a frame of this app around the chat, and nothing inline."""

from html import escape
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles

from amoxi_py import configure

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


@configure
def add_pages(app: FastAPI) -> None:
    """Put the pages beside the routes of the agents."""
    app.mount("/static", StaticFiles(directory=STATIC))

    @app.get("/", include_in_schema=False)
    async def home() -> RedirectResponse:
        return RedirectResponse("support-agent")

    @app.get("/assistant", include_in_schema=False)
    @app.get("/support-agent", include_in_schema=False)
    async def page(request: Request) -> HTMLResponse:
        agent = request.url.path.rpartition("/")[2]
        script = request.url_for("chat/page.js").path  # with the prefix of the settings, and what a proxy has in front
        html = (STATIC / "page.html").read_text("utf-8")
        html = html.replace("{chat}", escape(script.rpartition("/")[0])).replace("{agent}", escape(agent))
        html = html.replace(f'href="{agent}"', f'href="{agent}" aria-current="page"')
        return HTMLResponse(html, headers=HEADERS)
