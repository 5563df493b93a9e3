"""What an operator sets: the section `shop` of the settings; SHOP_JWT_KEY is a secret and stands in no file here."""

from pathlib import Path

from pydantic import BaseModel, Field, SecretStr

from amoxi_py import settings


@settings("shop")
class ShopSettings(BaseModel):
    """The shop's own settings, for its routes and for the agents alike."""

    jwt_key: SecretStr = Field(min_length=32)
    token_minutes: int = Field(default=60, ge=1)
    database: Path = Path("data/shop.db")
