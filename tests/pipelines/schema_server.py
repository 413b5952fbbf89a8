"""A schema registry over HTTP, as far as readers need one, and values as writers of Confluent's make them."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit


class SchemaServer:
    """Schemas are added by hand; `asked` lists the paths that were asked for. `credentials`, as name:password, are asked for."""

    def __init__(self, credentials: str = "") -> None:
        wanted = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if credentials and self.headers.get("Authorization") != wanted:
                    self.answer(401, {"error_code": 401, "message": "Unauthorized"})
                elif not self.path.startswith(("/schemas/", "/subjects/")):
                    self.answer(404, {"message": "HTTP 404 Not Found"})
                elif (found := outer.find(self.path)) is None:
                    self.answer(404, {"error_code": 40403, "message": "Schema not found"})
                else:
                    self.answer(200, found)

            def answer(self, code: int, content: dict[str, Any]) -> None:
                body = json.dumps(content).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def add(self, subject: str, schema_id: int, schema: str | bytes, references: tuple[str, ...] = ()) -> None:
        links = [{"name": name, "subject": name, "version": 1} for name in references]
        entry: dict[str, Any] = {"subject": subject, "id": schema_id, **({"references": links} if links else {})}
        if isinstance(schema, bytes):
            entry |= {"schemaType": "PROTOBUF", "schema": base64.b64encode(schema).decode()}
        else:
            entry["schema"] = schema
        self._schemas[schema_id] = entry
        self._subjects.setdefault(subject, []).append(schema_id)

    def find(self, path: str) -> dict[str, Any] | None:
        match urlsplit(path).path.strip("/").split("/"):
            case ["schemas", "ids", number]:
                return self._schemas.get(int(number))
            case ["subjects", subject, "versions", version]:
                ids = self._subjects.get(unquote(subject), [])
                place = len(ids) - 1 if version == "latest" else int(version) - 1
                return self._schemas[ids[place]] if 0 <= place < len(ids) else None
        return None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def prefixed(schema_id: int, value: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + value
