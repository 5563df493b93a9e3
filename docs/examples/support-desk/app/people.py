"""The people in `people.json`, and their passwords; `python -m app.people NAME [ROLE ...]` makes an entry."""

import base64
import functools
import getpass
import hashlib
import hmac
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

PEOPLE = Path(__file__).parents[1] / "people.json"


@dataclass(frozen=True)
class Person:
    """Somebody who may sign in."""

    name: str
    password: str
    roles: tuple[str, ...] = ()


def find_person(login: str) -> Person | None:
    """Return who has this login now: the file is read each time, so that a change of it holds at once."""
    entry = json.loads(PEOPLE.read_text("utf-8")).get(login)
    return None if entry is None else Person(**entry)


def check_password(person: Person | None, password: str) -> bool:
    """Whether it is the person's password; for nobody it takes as long, so that time tells no logins."""
    known = person.password if person is not None else _nobodys_password()
    salt, expected = map(base64.b64decode, known.split("$"))
    return hmac.compare_digest(_scrypt(password, salt), expected) and person is not None


def hash_password(password: str) -> str:
    """Return what is kept of a password."""
    salt = os.urandom(16)
    return "$".join(base64.b64encode(part).decode() for part in (salt, _scrypt(password, salt)))


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1)


@functools.cache
def _nobodys_password() -> str:
    return hash_password(os.urandom(16).hex())


if __name__ == "__main__":
    name, *roles = sys.argv[1:]
    entry = {"name": name, "password": hash_password(getpass.getpass()), "roles": roles}
    print(json.dumps({name.lower(): entry}))
