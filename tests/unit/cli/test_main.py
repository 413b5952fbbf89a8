import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.storage.inspection import make_directory

import penstock
from penstock.cli import log_demo_records
from penstock.cli.main import main
from penstock.cli.text import size_text, time_text
from penstock.records.batch import crc32c


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    script = (
        "import sys; from penstock.cli.main import main; code = main(['--help']); "
        "heavy = {'penstock.storage', 'penstock.records', 'penstock.app', 'cramjam', 'kio', 'pyarrow', 'uvloop', 'asyncio'}; "
        "print('loaded', sorted(heavy & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded [] 0"
    assert all(command in done.stdout for command in ("log", "doctor", "demo", "serve"))


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {penstock.__version__}\n"


def test_called_with_nothing_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Commands" in "".join(capsys.readouterr())


def test_serve_has_its_own_help_and_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    assert "--listen" in capsys.readouterr().out
    assert main(["serve", "--no-such-option"]) == 2
    assert "penstock serve --help" in capsys.readouterr().err


def test_doctor_looks_at_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = make_directory(tmp_path / "logs")
    assert main(["doctor", "--log-dir", str(directory), "--log-dir", str(tmp_path / "new")]) == 0
    out = capsys.readouterr().out
    for expected in (
        "Python",
        "kernels",
        "CRC-32C",
        "Java",
        "pyspark",
        "pyarrow",
        "open files",
        "2 partitions",
        "will be made",
    ):
        assert expected in out


def test_doctor_fails_for_a_directory_that_is_no_log_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "holidays").mkdir()
    assert main(["doctor", "--json", "--log-dir", str(tmp_path)]) == 1
    assert '"state": "failed", "detail": ' in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [tmp_path / "holidays"]


def test_doctor_fails_for_interpreted_kernels_under_ci(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.records import kernels

    monkeypatch.setattr(kernels, "COMPILED", False)
    monkeypatch.delenv("CI", raising=False)
    assert main(["doctor"]) == 0
    monkeypatch.setenv("CI", "true")
    assert main(["doctor"]) == 1
    assert "interpreted" in capsys.readouterr().out


def test_sizes_and_times_for_people() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 1_234_567, 5_000_000_000)] == [
        "0 B",
        "999 B",
        "1.0 KB",
        "1.2 MB",
        "5.00 GB",
    ]
    assert time_text(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert time_text(-1) == "-"
    assert time_text(2**62) == str(2**62)
    assert time_text(-62_135_596_800_001) == "-62135596800001"


def demo_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli", "log", "demo", *arguments]


def test_the_demo_proves_itself_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = demo_command("--records", "20000")
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "read back 20,000 records: none missing" in done.stdout
    assert "killed the writer with -9" in done.stdout
    assert "recovered, active" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_demo_keeps_its_files_when_asked_and_takes_no_directory_of_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = demo_command("--records", "2000", "--data", str(data), "--keep")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(data) in done.stdout
    assert main(["log", "verify", str(data)]) == 0
    before = sorted(data.rglob("*"))
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert again.stderr == f"penstock: {data} is not an empty directory; the demo writes only to one of its own\n"
    assert sorted(data.rglob("*")) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_clears_up(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        demo_command("--records", "5000000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as demo:
        while not list(tmp_path.glob("*/demo-0/*.log")):
            assert demo.poll() is None
        demo.send_signal(number)
        _, err = demo.communicate(timeout=60)
    assert (demo.returncode, err) == (1, "penstock: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_demo_whose_records_are_wrong_fails() -> None:
    data = log_demo_records.batch(0, 3)
    assert log_demo_records.check(data, 0) == 3
    with pytest.raises(log_demo_records.WrongRecordError, match="record 1"):
        log_demo_records.check(data, 1)
    changed = bytearray(data.replace(b"000000002 rain", b"000000002 Rain"))
    assert changed != data
    struct.pack_into(">I", changed, 17, crc32c(changed, 21))
    with pytest.raises(log_demo_records.WrongRecordError, match="record 2"):
        log_demo_records.check(bytes(changed), 0)


@pytest.mark.parametrize(
    ("owner", "refusal"),
    [
        ("node.id=7\ncluster.id=abc", "belongs to node 7 (meta.properties), this is node 1"),
        ("node.id=1\ncluster.id=another", "belongs to cluster another, this is cluster "),
    ],
)
def test_a_broker_refuses_a_directory_that_is_not_its_own_and_leaves_it_clean(
    tmp_path: Path, owner: str, refusal: str
) -> None:
    data = tmp_path / "data"
    served = [sys.executable, "-m", "penstock.cli", "serve", "--data", str(data), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(served, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("ready ")
        broker.terminate()
        broker.communicate(timeout=60)
    properties = data / "meta.properties"
    properties.write_text(f"version=1\n{owner}\n")
    done = subprocess.run(served, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert refusal in done.stderr
    assert done.stderr.count("\n") == 1
    assert properties.read_text() == f"version=1\n{owner}\n"
    assert (data / ".kafka_cleanshutdown").exists()
