"""What OAuth at `/mcp` needs beside its own settings: an address that people know, and https."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from amoxi_py.config.found import Found
from amoxi_py.config.sections import Sections
from amoxi_py.domain.addresses import is_safe

_OF_AN_ISSUER = ("audience", "name-claim", "roles-claim", "tenant-claim", "scopes")


def oauth_problems(sections: Sections, found: Mapping[str, Found], *, dev: bool) -> list[str]:
    """Return what is wrong with the settings of OAuth."""
    oauth, url = sections.ai.mcp.oauth, sections.server.public_url
    if not oauth.enabled:
        return []
    problems = []
    if oauth.issuer is None:
        problems += [
            f"'ai.mcp.oauth.{name}' from {found[f'ai.mcp.oauth.{name}'].source} is for tokens of another issuer: set "
            "'ai.mcp.oauth.issuer' to it, or take this out"
            for name in _OF_AN_ISSUER
            if f"ai.mcp.oauth.{name}" in found
        ]
    on = f"'ai.mcp.oauth.enabled' from {found['ai.mcp.oauth.enabled'].source} is true"
    if not sections.ai.mcp.enabled:
        problems.append(f"{on}, but 'ai.mcp.enabled' is false: set that to true too, or take this out")
    if url is None and not dev:
        problems.append(
            f"{on}, but 'server.public-url' is not set: set it to where people find this server, such as "
            "https://shop.example.com"
        )
    if url is not None and not _is_safe(url):
        problems.append(
            f"'server.public-url' from {found['server.public-url'].source} is {url!r}: OAuth needs an address that "
            "begins with https:// (http:// is for localhost alone), without '?' and '#'"
        )
    if oauth.issuer is not None and not _is_safe(oauth.issuer):
        problems.append(
            f"'ai.mcp.oauth.issuer' from {found['ai.mcp.oauth.issuer'].source} is {oauth.issuer!r}: it must begin with "
            "https:// (http:// is for localhost alone), without '?' and '#'"
        )
    return problems


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    return is_safe(parts) and bool(parts.hostname) and not parts.query and not parts.fragment
