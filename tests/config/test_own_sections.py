"""Sections of an app's own: where their values come from, and what stops the start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr, field_validator, model_validator

from amoxi_py import settings
from amoxi_py.config.load import load_settings
from amoxi_py.config.own_sections import OwnSections, load_own_sections
from amoxi_py.errors import ConfigError

SECRET = "sk-of-the-shop"


class Smtp(BaseModel):
    host: str = "localhost"
    port: Annotated[int, Field(ge=1)] = 25
    pass_word: SecretStr | None = None


@settings("shop")
class Shop(BaseModel):
    api_url: str = "https://shop.example"
    api_key: SecretStr | None = None
    tags: list[str] = []
    limits: dict[str, int] = {}
    currency: Literal["EUR", "USD"] = "EUR"
    smtp: Smtp = Smtp()
    spare: Smtp | None = None
    sender: str = Field(default="shop", alias="from")

    @field_validator("api_key")
    @classmethod
    def _is_a_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not key.get_secret_value().startswith("sk-"):
            raise ValueError(f"{key.get_secret_value()!r} is no key")
        return key

    @model_validator(mode="after")
    def _fits(self) -> Shop:
        if self.currency == "USD" and self.api_key is not None:
            raise ValueError(f"dollars need another key than {self.api_key.get_secret_value()}")
        return self


@settings("bank")
class Bank(BaseModel):
    url: str
    token: SecretStr


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., OwnSections]:
    """Load the sections of these models from a file's content, variables and what a command says."""

    def own(
        *models: Any,
        content: Any = None,
        environ: dict[str, str] | None = None,
        profile: str = "production",
        given: dict[str, Any] | None = None,
    ) -> OwnSections:
        (tmp_path / "application.json").write_text(json.dumps(content or {}), "utf-8")
        found = load_settings(tmp_path, profile=profile, environ=environ or {}, given=given)
        return load_own_sections(found, models or (Shop,))

    return own


@pytest.fixture
def refusal(own: Callable[..., OwnSections]) -> Callable[..., list[str]]:
    def refusal(*models: Any, **sources: Any) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            own(*models, **sources)
        assert SECRET not in str(caught.value)
        return list(caught.value.problems)

    return refusal


def test_without_anything_the_models_defaults_hold(own: Callable[..., OwnSections]) -> None:
    assert own().models == {Shop: Shop()}


def test_later_sources_win_and_each_value_knows_its_source(own: Callable[..., OwnSections], tmp_path: Path) -> None:
    (tmp_path / "application-dev.json").write_text('{"shop": {"smtp": {"port": 26}}}', "utf-8")
    (tmp_path / ".env").write_text("SHOP_SMTP_HOST=of-dotenv\nSHOP_FROM=a\n", "utf-8")
    content = {"shop": {"api-url": "https://file", "smtp": {"port": 1, "host": "file"}}}
    environ = {"SHOP_SPARE_PORT": "27", "SHOP_API_URL": "https://variable"}
    found = own(content=content, environ=environ, profile="dev", given={"shop.api-url": "https://command"})
    shop = found.models[Shop]
    assert (shop.api_url, shop.smtp.host, shop.smtp.port) == ("https://command", "of-dotenv", 26)
    assert (shop.spare.port, shop.spare.host) == (27, "localhost")
    assert {one.key: one.source for one in found.values if one.source} == {
        "shop.api-url": "the command",
        "shop.smtp.host": "SHOP_SMTP_HOST in .env",
        "shop.smtp.port": "application-dev.json",
        "shop.spare.port": "SHOP_SPARE_PORT",
    }


def test_keys_are_nested_or_dotted_and_objects_keep_their_names(own: Callable[..., OwnSections]) -> None:
    content = {"shop.smtp": {"port": 26}, "shop": {"limits": {"a.b": 1, "c": 2}, "tags": ["x"], "sender": "me"}}
    shop = own(content=content).models[Shop]
    assert (shop.smtp.port, shop.limits, shop.tags, shop.sender) == (26, {"a.b": 1, "c": 2}, ["x"], "me")


def test_lists_and_objects_in_variables(own: Callable[..., OwnSections]) -> None:
    shop = own(environ={"SHOP_TAGS": "a, b,", "SHOP_LIMITS": '{"day": 3}'}).models[Shop]
    assert (shop.tags, shop.limits) == (["a", "b"], {"day": 3})
    assert own(environ={"SHOP_TAGS": '["a,b"]'}).models[Shop].tags == ["a,b"]


def test_a_secret_can_come_from_a_file_and_is_not_printed(own: Callable[..., OwnSections], tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SECRET + "\n", "utf-8")
    found = own(environ={"SHOP_API_KEY_FILE": str(tmp_path / "key"), "SHOP_API_URL_FILE": str(tmp_path / "key")})
    assert found.models[Shop].api_key.get_secret_value() == SECRET
    assert found.models[Shop].api_url == "https://shop.example"  # no secret, so no file is read for it
    assert SECRET not in repr(found.models)
    assert found.secrets == (SECRET,)


def test_unknown_keys_of_a_claimed_section_stop_with_the_nearest_one(refusal: Callable[..., list[str]]) -> None:
    content = {"shop": {"api_url": "x", "smtp": {"hots": "x"}, "zzzzzzz": {"a": 1}}}
    api_url, hots, other = refusal(content=content)
    assert api_url == "'shop.api_url' in application.json is no setting; did you mean 'shop.api-url'?"
    assert hots == "'shop.smtp.hots' in application.json is no setting; did you mean 'shop.smtp.host'?"
    assert other.startswith("'shop.zzzzzzz.a' in application.json is no setting; the section 'shop' has: shop.api-url,")


def test_a_section_that_nobody_claims_stops(refusal: Callable[..., list[str]]) -> None:
    unclaimed, misspelt = refusal(content={"other": {"a": 1}, "servr": {"port": 1}})
    assert unclaimed == "'other.a' in application.json is no setting; no @settings model claims the section 'other'"
    assert misspelt == "'servr.port' in application.json is no setting; did you mean 'server.port'?"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"smtp": {"port": "many"}}, "'shop.smtp.port' from application.json is 'many': it should be a valid integer"),
        ({"smtp": {"port": 0}}, "'shop.smtp.port' from application.json is 0: it should be greater than or equal to 1"),
        ({"currency": "DM"}, "'shop.currency' from application.json is 'DM': it should be 'EUR' or 'USD'"),
        ({"smtp": 5}, "'shop.smtp' in application.json is no setting"),
        ({"tags": "a"}, "'shop.tags' from application.json is 'a': it should be a valid list"),
        ({"limits": {"a": "x"}}, "'shop.limits' from application.json is {'a': 'x'}: it should be a valid integer"),
        ({"api-key": "other"}, "'shop.api-key' from application.json is its value (not shown): '***' is no key"),
        ({"api-key": [SECRET]}, "'shop.api-key' from application.json is its value (not shown): it should be"),
        ({"api-key": SECRET, "currency": "USD"}, "'shop': dollars need another key than ***"),
        ({"from": "a", "sender": "b"}, "'shop.from' in application.json is no setting"),
    ],
)
def test_a_bad_value_stops_with_its_key_and_never_with_a_secret(
    refusal: Callable[..., list[str]], content: Any, told: str
) -> None:
    [problem] = refusal(content={"shop": content})
    assert problem.startswith(told)


def test_what_has_no_default_must_be_set(refusal: Callable[..., list[str]]) -> None:
    assert refusal(Bank) == [
        "'bank.url' is not set, and has no default: put it into application.json, or set the variable BANK_URL",
        "'bank.token' is not set, and has no default: set the variable BANK_TOKEN, or BANK_TOKEN_FILE",
    ]


def test_all_mistakes_of_all_sections_are_told_at_once(refusal: Callable[..., list[str]]) -> None:
    content = {"shop": {"currency": "DM", "typo": 1}, "bank": {"url": 5}}
    assert len(refusal(Shop, Bank, content=content)) == 4


def test_fields_that_would_be_one_variable_stop(refusal: Callable[..., list[str]]) -> None:
    @settings("mail")
    class Mail(BaseModel):
        smtp_host: str = ""
        smtp: Smtp = Smtp()

    @settings("openai")
    class Provider(BaseModel):
        api_key: str = ""

    first, second = refusal(Mail, Provider)
    assert "'mail.smtp.host' would be the variable MAIL_SMTP_HOST, as the setting 'mail.smtp-host' is" in first
    assert "'openai.api-key' would be the variable OPENAI_API_KEY, as the framework is" in second


def test_a_model_that_breaks_stops_with_its_name(refusal: Callable[..., list[str]]) -> None:
    @settings("odd")
    class Odd(BaseModel):
        @model_validator(mode="after")
        def _breaks(self) -> Odd:
            raise RuntimeError(SECRET)

    assert refusal(Odd) == [
        "'odd': its model 'test_a_model_that_breaks_stops_with_its_name.<locals>.Odd' raised RuntimeError"
    ]


def test_a_variable_that_is_nearly_one_of_a_section_warns(own: Callable[..., OwnSections]) -> None:
    found = own(environ={"SHOP_API_ULR": "x", "SHOP_OF_HORRORS_IS_A_FILM": "y", "SHOP_API_KEY_FILE": ""})
    assert found.warnings == ("the variable 'SHOP_API_ULR' is no setting; did you mean 'SHOP_API_URL'?",)


@pytest.mark.parametrize("here", [{}, {"SHOP_API_KEY": SECRET}])
def test_a_secret_in_a_file_of_settings_is_warned_about_and_not_told(
    own: Callable[..., OwnSections], here: dict[str, str]
) -> None:
    environ = {"SHOP_SMTP_PASS_WORD": "of-the-environment", **here}
    found = own(content={"shop": {"api-key": SECRET}}, environ=environ)
    assert found.warnings == (
        "'shop.api-key' from application.json is a secret, and such a file is copied and shared: set the variable "
        "SHOP_API_KEY, or SHOP_API_KEY_FILE to a file that holds it",
    )
