"""TLS as `ssl.*` settings ask for it, Kafka's names; certificates and keys in PEM, in files or in the settings themselves."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from penstock.base.errors import ConfigError
from penstock.client.errors import AuthenticationError

_STORE_TYPES = ("PEM", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Travels to other machines by pickle: a file named here must be there on each of them."""

    ca_file: str = ""
    ca_text: str = ""
    identity_file: str = ""
    """Certificate chain and key of this client."""
    identity_text: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    checks_hostname: bool = True

    def wrap(self, raw: socket.socket, host: str) -> socket.socket:
        try:
            return _context(self).wrap_socket(raw, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationError(
                f"the certificate of {host} is not to be trusted: {error.verify_message}"
            ) from error


def tls_from(properties: Mapping[str, str]) -> Tls:
    for name in ("ssl.truststore", "ssl.keystore"):
        kind = properties.get(f"{name}.type", "").upper()
        location = properties.get(f"{name}.location", "")
        if kind not in _STORE_TYPES or (not kind and location.endswith((".jks", ".p12", ".pfx"))):
            raise ConfigError(
                f"{name}: Java's stores are not read here: export it to PEM (keytool, openssl pkcs12) and set {name}.type=PEM"
            )
    tls = Tls(
        ca_file=properties.get("ssl.truststore.location") or properties.get("ssl.ca.location") or "",
        ca_text=properties.get("ssl.truststore.certificates", ""),
        identity_file=properties.get("ssl.keystore.location", ""),
        identity_text="\n".join(
            text for text in map(properties.get, ("ssl.keystore.key", "ssl.keystore.certificate.chain")) if text
        ),
        key_password=properties.get("ssl.key.password", ""),
        checks_hostname=properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
    )
    _context(tls)  # what is wrong with the files is said before anything is read
    return tls


@lru_cache(maxsize=16)
def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.checks_hostname
    try:
        if tls.ca_file or tls.ca_text:
            context.load_verify_locations(cafile=tls.ca_file or None, cadata=tls.ca_text or None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"ssl.truststore: {tls.ca_file or 'its certificates'}: {_reason(error)}") from error
    try:
        if tls.identity_file or tls.identity_text:
            with _identity_file(tls) as path:
                # Never asks at a terminal, as it would for a key that turns out to be encrypted.
                context.load_cert_chain(path, password=tls.key_password.encode)
    except (OSError, ValueError) as error:
        raise ConfigError(f"ssl.keystore: {tls.identity_file or 'its certificates'}: {_reason(error)}") from error
    return context


@contextlib.contextmanager
def _identity_file(tls: Tls) -> Iterator[str]:
    """Python's ssl reads keys from files only: a text stands in one for a moment, readable to this user alone."""
    if tls.identity_file:
        yield tls.identity_file
        return
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(tls.identity_text)
        yield path
    finally:
        os.unlink(path)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or "no PEM"
