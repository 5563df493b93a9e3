"""Runs of one tool that was called directly, without an agent: how they are named, and what their readers are told."""

from __future__ import annotations

from amoxi_py.domain.encoding import readable_json

_PREFIX = "tool:"  # no agent's name has a colon; statements of the stores look for it too


def direct_agent(tool: str) -> str:
    """Return what stands for an agent's name in runs of a tool."""
    return _PREFIX + tool


def direct_tool(agent: str) -> str | None:
    """Return the tool of which runs with this name are, or None when it is an agent's."""
    return agent[len(_PREFIX) :] if agent.startswith(_PREFIX) else None


def told_result(result: str) -> tuple[str, str | None]:
    """Return a run's output and its result (JSON text, of a value that is no text) by the JSON text of its call's."""
    return readable_json(result), None if result[0] == '"' else result
