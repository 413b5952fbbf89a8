"""SCRAM, the client's side (RFC 5802, without channel binding): neither side shows the password to the other."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from penstock.client.errors import AuthenticationError

ITERATIONS_MIN = 4096
_HEADER = "n,,"


class ScramClient:
    """Three messages: `first`, then `final` for the server's first, then `verify` for its last."""

    def __init__(self, hash_name: str, username: str, password: str, nonce: str) -> None:
        self._hash = hash_name
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"{_HEADER}{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """AuthenticationError for a server that does not go on with our nonce, or makes guessing cheap."""
        given = _attributes(server_first)
        try:
            nonce, salt, iterations = given["r"], base64.b64decode(given["s"], validate=True), int(given["i"])
        except (KeyError, ValueError, binascii.Error):
            raise AuthenticationError("the broker's first SCRAM message is none") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("the broker goes on with another nonce than ours")
        if iterations < ITERATIONS_MIN:
            raise AuthenticationError(f"the broker asks for {iterations} SCRAM iterations, fewer than {ITERATIONS_MIN}")
        without_proof = f"c={base64.b64encode(_HEADER.encode()).decode()},r={nonce}"
        message = b",".join((self._bare.encode(), server_first, without_proof.encode()))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        given = _attributes(server_final)
        if "e" in given:
            raise AuthenticationError(f"the broker refuses: {given['e']}")
        try:
            signature = base64.b64decode(given["v"], validate=True)
        except (KeyError, binascii.Error):
            raise AuthenticationError("the broker's last SCRAM message is none") from None
        if not hmac.compare_digest(signature, self._server_signature):
            raise AuthenticationError("the broker does not know the password either: it is not the one it says it is")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _attributes(message: bytes) -> dict[str, str]:
    parts = message.decode("utf-8", "replace").split(",")
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}
