"""How the payment provider proves that a request is its own: an HMAC of the body, with the secret of both."""

import hashlib
import hmac

SIGNATURE = "x-payments-signature"


def sign(body: bytes, secret: str) -> str:
    """Return the signature of a body."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def is_signed(body: bytes, signature: str, secret: str) -> bool:
    """Whether the signature is that of the body."""
    return hmac.compare_digest(sign(body, secret).encode(), signature.encode())
