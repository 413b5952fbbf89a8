"""`penstock cluster status` over files that nobody's cluster wrote, and who holds a directory. The rest needs a cluster: `tests/cluster`."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.locks import holder
from penstock.cli.main import main

BROKER = {"id": 1, "pid": 2**22, "host": "127.0.0.1", "port": 1}
_HOLD = """
import sys
from penstock.base.files import SystemFiles
lock = SystemFiles().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_what_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"zookeeper": "127.0.0.1:1", "brokers": [BROKER]}))
    assert main(["cluster", "status", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"broker 1 at 127.0.0.1:1 (process {2**22}): not there",
        "ZooKeeper at 127.0.0.1:1: not there",
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_a_zookeeper_that_cannot_listen_says_so(host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"{host}:{taken.getsockname()[1]}"
        assert main(["zookeeper", "--data", str(tmp_path / "data"), "--listen", listen]) == 1
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"penstock: --listen {listen} cannot be listened on: ")


@pytest.mark.parametrize(
    "content",
    [
        "nonsense",
        [],
        {},
        {"zookeeper": 5, "brokers": []},
        {"zookeeper": "here", "brokers": []},
        {"zookeeper": "127.0.0.1:65536", "brokers": []},
        {"zookeeper": "127.0.0.1:1", "brokers": [1]},
        *(
            {"zookeeper": "127.0.0.1:1", "brokers": [{**BROKER, **wrong}]}
            for wrong in ({"pid": "1"}, {"pid": 2**31}, {"pid": 0}, {"port": 65_536}, {"host": None}, {"id": None})
        ),
    ],
)
def test_a_file_of_something_else_is_named(content: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps(content))
    assert main(["cluster", "status", "--data", str(tmp_path)]) == 1
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"penstock: {tmp_path / 'cluster.json'} does not say what runs there")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are not asked")
def test_the_process_that_holds_a_directory_is_found(tmp_path: Path) -> None:
    assert holder(str(tmp_path)) is None
    command = [sys.executable, "-c", _HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert holder(str(tmp_path)) == process.pid
        process.communicate()
    assert holder(str(tmp_path)) is None
