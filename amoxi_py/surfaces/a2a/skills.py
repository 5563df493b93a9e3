"""Which agent a message is for: the skill that it names, else the app's default, else the only one."""

from __future__ import annotations

from a2a.types import a2a_pb2 as wire
from a2a.utils.errors import InvalidParamsError
from google.protobuf.struct_pb2 import Struct

from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine

_LONGEST_NAME = 100


class Skills:
    """The agents of an app as its callers see them."""

    def __init__(self, engine: Engine, default: str | None) -> None:
        self._engine = engine
        self._default = default

    def of(self, principal: Principal) -> tuple[str, ...]:
        """Return the skills of a caller."""
        return tuple(agent.name for agent in self._engine.agents(principal))

    def named(self, params: wire.SendMessageRequest, principal: Principal) -> str | None:
        """Return the skill that a request names, or its message; raise `InvalidParamsError` for one that is none."""
        for metadata in (params.metadata, params.message.metadata):
            skill = _skill_in(metadata)
            if skill is not None:
                if skill not in self.of(principal):
                    raise self.unknown(principal, skill)
                return skill
        return None

    def default(self, principal: Principal) -> str:
        """Return who gets a message that names no skill; raise `InvalidParamsError` where it could be several."""
        skills = self.of(principal)
        if self._default in skills:
            return self._default
        if len(skills) == 1:
            return skills[0]
        raise InvalidParamsError(f"name a skill in metadata.skill: {self._told(principal)}")

    def unknown(self, principal: Principal, skill: str) -> InvalidParamsError:
        """Return what a caller is told that names a skill which it has not."""
        return InvalidParamsError(f"there is no skill {skill[:_LONGEST_NAME]!r}: {self._told(principal)}")

    def _told(self, principal: Principal) -> str:
        skills = self.of(principal)
        return f"the skills are {', '.join(skills)}" if skills else "there are no skills for this caller"


def _skill_in(metadata: Struct) -> str | None:
    if "skill" not in metadata:
        return None
    skill = metadata["skill"]
    if skill is None or skill == "":
        return None
    if not isinstance(skill, str):
        raise InvalidParamsError("metadata.skill must be a text")
    return skill
