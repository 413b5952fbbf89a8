"""TLS and SASL: the words of the protocols are the standards', wrong settings and wrong brokers are refused in one sentence."""

from __future__ import annotations

import pickle
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from penstock.base.errors import ConfigError
from penstock.client.config import client_config
from penstock.client.errors import AuthenticationError
from penstock.client.sasl import Credentials
from penstock.client.scram import ScramClient
from penstock.client.security import security_for

SERVERS = {"bootstrap.servers": "b:1"}
# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = rb"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    rb"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_says_what_the_standard_says() -> None:
    scram = ScramClient("sha256", "user", "pencil", NONCE)
    assert scram.first() == b"n,,n=user,r=" + NONCE.encode()
    assert scram.final(SERVER_FIRST) == CLIENT_FINAL
    scram.verify(SERVER_FINAL)
    assert ScramClient("sha256", "a=b,c", "x", "n").first() == b"n,,n=a=3Db=2Cc,r=n"


@pytest.mark.parametrize(
    ("first", "final", "sentence"),
    [
        (SERVER_FIRST.replace(b"rOprN", b"other"), b"", "another nonce than ours"),
        (b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"", "another nonce than ours"),
        (SERVER_FIRST.replace(b"4096", b"1"), b"", "asks for 1 SCRAM iterations, fewer than 4096"),
        (b"nonsense", b"", "first SCRAM message is none"),
        (SERVER_FIRST, b"v=" + b"A" * 43 + b"=", "does not know the password either"),
        (SERVER_FIRST, b"e=unknown-user", "the broker refuses: unknown-user"),
        (SERVER_FIRST, b"", "last SCRAM message is none"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(first: bytes, final: bytes, sentence: str) -> None:
    scram = ScramClient("sha256", "user", "pencil", NONCE)

    def talk() -> None:
        scram.final(first)
        scram.verify(final)

    with pytest.raises(AuthenticationError, match=sentence):
        talk()


def test_plain_and_refusals() -> None:
    said: list[tuple[int, int, bytes]] = []

    def exchange(key: int, version: int, body: bytes) -> memoryview:
        said.append((key, version, body))
        if key == 17:
            return memoryview(struct.pack(">hi", 0, 1) + b"\x00\x05PLAIN")
        return memoryview(struct.pack(">hh", 0, -1) + struct.pack(">i", 0) + bytes(8))

    Credentials(mechanism="PLAIN", username="alice", password="geheim").authenticate(exchange)
    assert said == [(17, 1, b"\x00\x05PLAIN"), (36, 1, b"\x00\x00\x00\x0d\x00alice\x00geheim")]
    refusals: list[tuple[Callable[..., memoryview], str]] = [
        (lambda *_: memoryview(struct.pack(">hi", 33, 1) + b"\x00\x0dSCRAM-SHA-256"), "it offers SCRAM-SHA-256"),
        (lambda key, *_: memoryview(struct.pack(">hi", 0, 0) if key == 17 else struct.pack(">hh", 58, 2) + b"no" + bytes(12)),
         "refuses these credentials: no"),
    ]  # fmt: skip
    for refusal, sentence in refusals:
        with pytest.raises(AuthenticationError, match=sentence):
            Credentials(mechanism="PLAIN", username="alice", password="x").authenticate(refusal)


def test_credentials_come_from_javas_setting_or_from_two_of_their_own_and_are_not_shown() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password=\'se cret\';'
    java = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
    config = client_config({**SERVERS, **java})
    plain: dict[str, str] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
    assert config == client_config({**SERVERS, **plain, "sasl.username": 'al"ice', "sasl.password": "se cret"})
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(pickle.loads(pickle.dumps(config))) == hash(config)
    assert "se cret" not in repr(config)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"security.protocol": "TLS"}, "security.protocol='TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism='GSSAPI' is not spoken: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 are"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "names no user"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "Java's stores are not read here: export it to PEM"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "k.p12"}, "ssl.keystore: Java's stores are not read here"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere.pem"}, "/nowhere.pem: No such file"),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "nonsense"}, "ssl.truststore: its certificates: "),
        ({"security.protocol": "SSL", "ssl.keystore.key": "nonsense"}, "ssl.keystore: its certificates: "),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_before_anything_is_opened(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        client_config({**SERVERS, **settings})


class Server:
    """A TLS listener that greets one client."""

    def __init__(self, authority: trustme.CA, *, name: str = "127.0.0.1", asks_for_certificate: bool = False) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        if asks_for_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            authority.configure_trust(context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._context = context
        self.peer: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        raw, _ = self._listener.accept()
        with raw:
            try:
                with self._context.wrap_socket(raw, server_side=True) as secure:
                    self.peer = dict(secure.getpeercert() or {})
                    secure.sendall(b"hello")
            except (ssl.SSLError, ConnectionError):
                return

    def greeting(self, settings: dict[str, str]) -> bytes:
        security = security_for("SSL", settings)
        with socket.create_connection(self._listener.getsockname()) as raw, security.wrap(raw, "127.0.0.1") as secure:
            return secure.recv(5)


def pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def test_a_broker_is_trusted_by_its_authority_and_its_name() -> None:
    authority, other = trustme.CA(), trustme.CA()
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem(authority)}
    with Server(authority) as server:
        assert server.greeting(trust) == b"hello"
    with Server(other) as server, pytest.raises(AuthenticationError, match=r"127\.0\.0\.1 is not to be trusted: "):
        server.greeting(trust)
    with Server(authority, name="elsewhere.example") as server, pytest.raises(AuthenticationError, match="mismatch"):
        server.greeting(trust)
    with Server(authority, name="elsewhere.example") as server:
        assert server.greeting({**trust, "ssl.endpoint.identification.algorithm": ""}) == b"hello"


def test_a_client_shows_its_certificate_from_a_file_or_from_its_settings(tmp_path: Path) -> None:
    authority = trustme.CA()
    identity = authority.issue_cert("client.example", common_name="client")
    key, chain = identity.private_key_pem.bytes().decode(), identity.cert_chain_pems[0].bytes().decode()
    (tmp_path / "client.pem").write_text(key + chain)
    (tmp_path / "ca.pem").write_text(pem(authority))
    for settings in (
        {"ssl.keystore.location": str(tmp_path / "client.pem")},
        {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain},
    ):
        with Server(authority, asks_for_certificate=True) as server:
            assert server.greeting({"ssl.truststore.location": str(tmp_path / "ca.pem"), **settings}) == b"hello"
        assert (("commonName", "client"),) in server.peer["subject"]
