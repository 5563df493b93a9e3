"""The people of two shops, with hashes of their passwords, and the tokens that they get for them."""

import base64
import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import jwt

from .settings import ShopSettings

ISSUER = "shop-api"
NEEDED = ("exp", "iss", "sub", "name", "tenant", "roles")


@dataclass(frozen=True)
class Person:
    """Somebody who has signed in, as their token says."""

    login: str
    name: str
    tenant: str
    roles: tuple[str, ...] = ()


class BadToken(Exception):
    """A token that is expired, forged, or none of ours."""


PEOPLE = {  # each one's password is `<login>-of-the-demo`
    "ann": (
        Person("ann", "Ann", "acme"),
        "2/iz8tqzRLO+M4zFjJmN4g==$P1VLTrlng7uZPtdynKg0dpdFAI+cAZCBEabemztCBiclcBIQCPjT3fdnA/EGy/ZBA8Sy4txpXxJ2ec39O4tikQ==",
    ),
    "max": (
        Person("max", "Max", "acme", ("manager",)),
        "/cVFOijg7yFNOZKTF2APFg==$CY/n5bFwkMQiaeBUBjAAqOLqA6hYgQ0YICRpHNrn9SMmEqkW4NHsYX9DEIFXMPuaW2N60KTHRxHr3WLIfOXMsQ==",
    ),
    "bob": (
        Person("bob", "Bob", "birch", ("manager",)),
        "EVufS/SWEkePjJOQ6NY42g==$6EJM9Ut2MG5Ggeukm6NCn90YaoudhPDFgN3flU83kc1nUcs5eqpiLJU9fM3NyQYGfdKvJxhthcWjP+uAvyaTyA==",
    ),
}
NOBODYS = f"{'A' * 22}==${'A' * 86}=="  # is compared for unknown logins, so that time tells nothing of them


def sign_in(login: str, password: str) -> Person | None:
    """Return who it is, or None when login and password do not belong together."""
    person, known = PEOPLE.get(login, (None, NOBODYS))
    salt, expected = map(base64.b64decode, known.split("$"))
    found = hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1)
    return person if hmac.compare_digest(found, expected) else None


def make_token(person: Person, settings: ShopSettings) -> str:
    """Return a token that says who somebody is, for as long as the settings say."""
    told = {"sub": person.login, "name": person.name, "tenant": person.tenant, "roles": person.roles}
    until = datetime.now(UTC) + timedelta(minutes=settings.token_minutes)
    return jwt.encode({**told, "iss": ISSUER, "exp": until}, settings.jwt_key.get_secret_value(), algorithm="HS256")


def read_token(token: str, settings: ShopSettings) -> Person:
    """Return whom a token is about; raise `BadToken` when it cannot be believed."""
    key, options = settings.jwt_key.get_secret_value(), {"require": NEEDED}
    try:
        claims = jwt.decode(token, key, algorithms=["HS256"], issuer=ISSUER, options=options)
    except jwt.ExpiredSignatureError as error:
        raise BadToken("the token has expired; sign in anew") from error
    except jwt.InvalidTokenError as error:
        raise BadToken("the token is not one of ours") from error
    return Person(claims["sub"], claims["name"], claims["tenant"], tuple(claims["roles"]))
