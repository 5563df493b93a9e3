"""What A2A needs beside its own settings: a key that signs, and the address that it signs."""

from __future__ import annotations

from collections.abc import Mapping

from amoxi_py.config.found import Found
from amoxi_py.config.sections import Sections


def a2a_problems(sections: Sections, found: Mapping[str, Found], *, dev: bool) -> list[str]:
    """Return what is wrong with the settings of A2A; the key is in none of it."""
    key = sections.ai.a2a.card_key
    if key is None:
        return []
    from_source = f"'ai.a2a.card-key' from {found['ai.a2a.card-key'].source}"
    problems = []
    reason = _wrong_with(key.get_secret_value())
    if reason is not None:
        problems.append(
            f"{from_source} cannot sign the agent card: {reason}; make one with "
            "`openssl ecparam -name prime256v1 -genkey -noout`"
        )
    if sections.ai.a2a.enabled and sections.server.public_url is None and not dev:
        problems.append(
            f"{from_source} signs the agent card, and so the address in it, but 'server.public-url' is not set: set it "
            "to where partners find this server, such as https://shop.example.com"
        )
    return problems


def _wrong_with(pem: str) -> str | None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem.encode("utf-8", "surrogateescape"), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "it is no private key in PEM without a password"
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        return "it is no key of the curve P-256"
    return None
