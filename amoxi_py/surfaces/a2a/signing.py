"""The signature of the agent card (8.4), and the public key that it is checked with."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import create_agent_card_signer
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt.algorithms import ECAlgorithm
from jwt.utils import base64url_encode
from starlette.responses import Response

from amoxi_py.domain.encoding import encode_json
from amoxi_py.surfaces.a2a.settings import PATH

KEYS_PATH = f"{PATH}/keys"

_ALGORITHM = "ES256"


class Signer:
    """Signs cards with one key.

    Raises:
        ValueError: the text is no private key in PEM of the curve P-256.
    """

    def __init__(self, pem: str) -> None:
        key = load_pem_private_key(pem.encode(), password=None)
        if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
            raise ValueError("it is no key of the curve P-256")
        self._pem = pem
        public: dict[str, Any] = json.loads(ECAlgorithm.to_jwk(key.public_key()))
        public = {name: public[name] for name in ("crv", "kty", "x", "y")}
        thumbprint = hashlib.sha256(json.dumps(public, separators=(",", ":"), sort_keys=True).encode())
        self.key_id = base64url_encode(thumbprint.digest()).decode()
        """The thumbprint of the public key (RFC 7638)."""
        self._keys = encode_json({"keys": [{**public, "kid": self.key_id, "alg": _ALGORITHM, "use": "sig"}]})

    def sign(self, card: pb.AgentCard, base: str) -> pb.AgentCard:
        """Return a card with a signature; where its key is, is said as an address under `base`."""
        signed = pb.AgentCard()
        signed.CopyFrom(card)
        header = {"alg": _ALGORITHM, "typ": "JOSE", "kid": self.key_id, "jku": f"{base}{KEYS_PATH}"}
        return create_agent_card_signer(self._pem, header)(signed)  # type: ignore[arg-type]  # all of its keys are there

    def keys(self) -> Response:
        """Return the answer with the public key, as a set of keys (RFC 7517)."""
        headers = {"cache-control": "public, max-age=300"}
        return Response(self._keys, media_type="application/jwk-set+json", headers=headers)
