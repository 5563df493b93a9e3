"""What is kept of a webhook: where it goes, what it shows to prove itself, and its caller's version of A2A.

The token and the credentials are the caller's secrets: they are given back to nobody but it, and stand in no log.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from a2a.types.a2a_pb2 import AuthenticationInfo, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError
from msgspec import Struct
from msgspec.json import decode, encode

_LONGEST = {"id": 256, "token": 4096, "scheme": 64, "credentials": 8192}
_ALLOWED = {
    "id": re.compile(r"[ -~]*"),
    "token": re.compile(r"[!-~]*"),
    "scheme": re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]*"),
    "credentials": re.compile(r"([!-~]([ -~]*[!-~])?)?"),
}


class PushConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A webhook's settings; `base` is where files of the task are found, as the caller reached this server."""

    url: str
    version: str
    base: str = ""
    token: str = ""
    authentication: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"PushConfig(version={self.version!r})"

    @property
    def host(self) -> str:
        """The host of its URL, which is all of it that a log may show."""
        return urlsplit(self.url).hostname or ""

    @property
    def place(self) -> str:
        """The host with its port."""
        return urlsplit(self.url).netloc

    def to_json(self) -> str:
        """Return what is stored."""
        return encode(self).decode()

    def to_proto(self, id: str, task_id: str) -> TaskPushNotificationConfig:
        """Return it as the caller gave it."""
        told = TaskPushNotificationConfig(id=id, task_id=task_id, url=self.url, token=self.token)
        if self.authentication is not None:
            scheme, credentials = self.authentication
            told.authentication.CopyFrom(AuthenticationInfo(scheme=scheme, credentials=credentials))
        return told

    def headers(self) -> dict[str, str]:
        """Return what proves to the receiver who sends."""
        told: dict[str, str] = {}
        if self.token:
            told["x-a2a-notification-token"] = self.token
        if self.authentication is not None and all(self.authentication):
            told["authorization"] = " ".join(self.authentication)
        return told


def is_id(text: str) -> bool:
    """Whether a webhook can have this id."""
    return len(text) <= _LONGEST["id"] and _ALLOWED["id"].fullmatch(text) is not None


def push_config_from_json(content: str) -> PushConfig:
    """Return the settings that were stored."""
    return decode(content, type=PushConfig)


def read_push_config(told: TaskPushNotificationConfig, *, version: str, base: str) -> PushConfig:
    """Return what a caller set, but for whether its URL may be used; raise `InvalidParamsError`."""
    authentication = (told.authentication.scheme, told.authentication.credentials)
    fields = {
        "id": told.id,
        "token": told.token,
        "scheme": told.authentication.scheme,
        "credentials": told.authentication.credentials,
    }
    for name, value in fields.items():
        if len(value) > _LONGEST[name]:
            raise InvalidParamsError(f"the webhook's {name} has more than {_LONGEST[name]} characters")
        if not _ALLOWED[name].fullmatch(value):
            raise InvalidParamsError(f"the webhook's {name} holds characters that do not go into a header")
    if told.authentication.credentials and not told.authentication.scheme:
        raise InvalidParamsError("the webhook's credentials need a scheme, such as 'Bearer'")
    return PushConfig(
        url=told.url,
        version=version,
        base=base,
        token=told.token,
        authentication=authentication if told.HasField("authentication") else None,
    )
