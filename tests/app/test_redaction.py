"""Secrets in text that others wrote: hidden where they are known, and where they look like what they are."""

from __future__ import annotations

import pytest

from amoxi_py.app.redaction import Redaction

KNOWN = "sk-of-the-operator"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"cannot call with {KNOWN!r}", "cannot call with '***'"),
        ("postgresql://shop:hunter2secret@db.internal:5432/shop", "postgresql://shop:***@db.internal:5432/shop"),
        ("redis://:hunter2secret@cache", "redis://:***@cache"),
        ("host=db user=shop password=hunter2 dbname=x", "host=db user=shop password=*** dbname=x"),
        ("{'password': 'hunter2', 'user': 'shop'}", "{'password': '***', 'user': 'shop'}"),
        ('"api_key": "hunter2secret"', '"api_key": "***"'),
        ("Authorization: Bearer abcdef123456.x-y_z", "Authorization: Bearer ***"),
        ("https://shop.example/a:b@c and mail to ann@shop.example", None),
        ("the token was refused, the password is wrong", None),
        ("tokens: 512, secretary: Ann", None),
    ],
)
def test_a_secret_is_hidden_and_all_else_stays(text: str, left: str | None) -> None:
    assert Redaction([KNOWN])(text) == (text if left is None else left)


def test_of_an_address_only_the_password_is_a_secret() -> None:
    redact = Redaction(["postgresql://shop:p%40ss-word-1@db.internal/shop", "short"])
    assert redact("p@ss-word-1 and p%40ss-word-1 of shop at db.internal, short") == (
        "*** and *** of shop at db.internal, short"
    )


def test_of_a_conninfo_its_password_is_a_secret_too() -> None:
    redact = Redaction(
        [r"host=db user=shop password='very long\'s secret' dbname=shop", "postgres://a@b/c?password=second-one"]
    )
    assert redact("very long's secret of shop at db, and second-one") == "*** of shop at db, and ***"


def test_a_word_that_is_user_and_password_is_hidden_only_in_the_address() -> None:
    redact = Redaction(["postgresql://postgres:postgres@localhost/app"])
    assert redact("the postgres store: postgresql://postgres:postgres@localhost/app") == (
        "the postgres store: postgresql://postgres:***@localhost/app"
    )
