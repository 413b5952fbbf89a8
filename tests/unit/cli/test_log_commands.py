"""`penstock log …` as a person calls it: codes, sentences, lines."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.storage.inspection import (
    PLAIN_RECORDS,
    content,
    flip,
    is_root,
    logs_of,
    make_directory,
    make_old_directory,
)

from penstock.cli.main import main

OK, FAILED, USAGE = 0, 1, 2
NOBODY = 65534
COMMANDS = ("dump", "verify", "repair", "recover")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "logs")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """What a refusal says: one line on stderr, nothing on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("penstock: ")
    assert err.count("\n") == 1
    return err.removeprefix("penstock: ").rstrip("\n")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Another process works in the directory."""
    script = (
        "import sys; from penstock.base.files import SystemFiles; "
        "lock = SystemFiles().lock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(directory / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            holder.communicate()


def test_json_is_one_object_a_line_with_a_kind(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", "--deep", "--json", str(directory)]) == OK
    found = lines(capsys)
    assert {item["kind"] for item in found} == {
        "batch",
        "record",
        "control_record",
        "offset_index",
        "time_index",
        "transaction_index",
        "producer_snapshot",
        "checkpoint",
        "leader_epoch",
        "properties",
    }
    records = [item for item in found if item["kind"] == "record"]
    plain = records[0]
    assert (plain["offset"], plain["key"], plain["value"]) == (0, "key 0", "value 0")
    assert plain["headers"] == [{"key": "h", "value": "x"}, {"key": "null", "value": None}]
    other = records[PLAIN_RECORDS]
    assert (other["key"], other["value"]) == (None, {"base64": "/wD+"})
    batch = next(item for item in found if item["kind"] == "batch")
    assert {"base_offset", "last_offset", "count", "crc", "is_valid", "producer_id", "compress_codec"} <= set(batch)


def test_text_names_each_file_once_and_no_byte_of_a_record_reaches_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.records.build import build_batch

    partition = tmp_path / "evil-0"
    partition.mkdir()
    log = partition / f"{0:020d}.log"
    log.write_bytes(build_batch([(1, b"\x1b[31mred\x07", "ok\u009b2J\n".encode(), (("h\x1b", b"\x1b"),))]))
    assert main(["log", "dump", "--deep", str(partition)]) == OK
    out = capsys.readouterr().out
    assert out.count(str(log)) == 1
    assert all(character.isprintable() or character == "\n" for character in out)
    assert "red" in out


def test_a_path_may_hold_what_no_encoding_knows(tmp_path: Path) -> None:
    partition = os.fsencode(tmp_path) + b"/t\xff-0"
    os.mkdir(partition)
    shutil.copytree(make_directory(tmp_path / "logs") / "plain-0", os.fsdecode(partition), dirs_exist_ok=True)
    for arguments in (["dump"], ["dump", "--json"], ["verify"]):
        command = [sys.executable, "-m", "penstock.cli", "log", *arguments, os.fsdecode(partition)]
        done = subprocess.run(command, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (OK, b"")


def test_verify_counts_what_it_saw(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", "--json", str(directory)]) == OK
    *partitions, summary = lines(capsys)
    assert [item["partition"] for item in partitions] == ["plain-0", "transactions-3"]
    assert partitions[0]["records"] == PLAIN_RECORDS
    assert (summary["kind"], summary["problems"]) == ("summary", 0)
    assert main(["log", "verify", str(directory)]) == OK
    assert "no problems" in capsys.readouterr().out


def test_verify_names_file_position_offset_and_reason(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logs_of(directory / "plain-0")[0]
    flip(log, 70)
    assert main(["log", "verify", str(directory)]) == FAILED
    out = capsys.readouterr().out
    assert f"{log}, position 0, offset 0: the batch's CRC does not match\n" in out
    assert "1 problem\n" in out
    assert main(["log", "verify", "--json", str(directory)]) == FAILED
    problem = lines(capsys)[0]
    assert (problem["kind"], problem["file"], problem["position"], problem["offset"]) == ("problem", str(log), 0, 0)


def test_dump_of_a_broken_file_shows_the_rest_and_fails(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logs_of(directory / "plain-0")[0]
    flip(log, 70)
    assert main(["log", "dump", "--json", str(log)]) == FAILED
    found = lines(capsys)
    assert [item["kind"] for item in found][:3] == ["batch", "problem", "batch"]
    assert found[0]["is_valid"] is False


def test_recover_leaves_a_directory_as_a_clean_stop_does(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / ".kafka_cleanshutdown").unlink()
    log = logs_of(directory / "plain-0")[-1]
    good = log.read_bytes()
    log.write_bytes(good + b"torn")
    assert main(["log", "recover", "--json", str(directory)]) == OK
    plain, _ = lines(capsys)
    assert (plain["kind"], plain["end_offset"]) == ("recovered", PLAIN_RECORDS)
    assert f"{log.name}.{len(good)}.cut" in str(plain["cut"])
    assert log.read_bytes() == good
    assert (directory / ".kafka_cleanshutdown").exists()
    assert main(["log", "verify", str(directory)]) == OK


def test_recover_recovers_even_what_was_stopped_cleanly(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (directory / ".kafka_cleanshutdown").exists()
    flip(logs_of(directory / "plain-0")[-1], 70)  # within a batch: nothing that a clean start would come across
    assert main(["log", "recover", str(directory)]) == OK
    assert "1 cut" in capsys.readouterr().out


def test_recover_from_the_start_finds_what_lies_below_the_recovery_point(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = logs_of(directory / "plain-0")[0]
    behind = len(logs_of(directory / "plain-0")) - 1
    flip(first, 70)
    assert main(["log", "recover", "--json", str(directory)]) == OK
    assert lines(capsys)[0]["end_offset"] == PLAIN_RECORDS
    assert main(["log", "recover", "--from-start", "--json", str(directory)]) == OK
    plain = lines(capsys)[0]
    assert plain["end_offset"] == 0
    assert len(list((directory / "plain-0").glob("*.log.cut"))) == behind
    assert main(["log", "verify", str(directory)]) == OK


def test_recover_of_one_partition_leaves_the_others_and_the_marker(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / ".kafka_cleanshutdown").unlink()
    other = content(directory / "transactions-3")
    log = logs_of(directory / "plain-0")[-1]
    log.write_bytes(log.read_bytes() + b"torn")
    assert main(["log", "recover", str(directory / "plain-0")]) == OK
    assert "1 cut" in capsys.readouterr().out
    assert content(directory / "transactions-3") == other
    assert not (directory / ".kafka_cleanshutdown").exists(), "the other partitions were not looked at"
    assert "plain 0 600" in (directory / "recovery-point-offset-checkpoint").read_text()
    assert "transactions 3 " in (directory / "recovery-point-offset-checkpoint").read_text()


def test_recover_takes_gaps_for_compaction(directory: Path) -> None:
    """Whether a topic is compacted is not known here: a gap must not cost the segments behind it."""
    logs = logs_of(directory / "plain-0")
    logs[1].unlink()
    data = {path.name: path.read_bytes() for path in logs_of(directory / "plain-0")}
    assert main(["log", "recover", "--from-start", str(directory)]) == OK
    assert {path.name: path.read_bytes() for path in logs_of(directory / "plain-0")} == data


def test_repair_says_what_it_did_and_what_is_left(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = logs_of(directory / "plain-0")
    logs[2].with_suffix(".index").unlink()
    flip(logs[1], 70)
    data = {path.name: path.read_bytes() for path in logs}
    assert main(["log", "repair", str(directory)]) == FAILED
    out = capsys.readouterr().out
    assert "rebuilt" in out
    assert "--force" in out
    assert {path.name: path.read_bytes() for path in logs} == data
    assert main(["log", "repair", "--force", "--json", str(directory)]) == OK
    assert {item["kind"] for item in lines(capsys)} == {"mended"}
    assert main(["log", "verify", str(directory)]) == OK


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_in_use_is_refused(directory: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(directory)
    with locked(directory):
        for path in (directory, directory / "plain-0"):
            assert main(["log", command, str(path)]) == FAILED
            assert f"{directory} is in use by another process" in sentence(capsys)
    assert content(directory) == before


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_a_directory_in_use_is_read_with_live(
    directory: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logs_of(directory / "plain-0")[-1]
    log.write_bytes(log.read_bytes() + b"on its w")
    log.with_suffix(".index").write_bytes(log.with_suffix(".index").read_bytes() + bytes(800))
    with locked(directory):
        assert main(["log", command, "--live", str(directory)]) == OK
    assert capsys.readouterr().err == ""


def test_readers_get_on_with_each_other_and_leave_no_lock_file(directory: Path) -> None:
    from penstock.cli import locks

    with locks.reading([str(directory)], live=False), locks.reading([str(directory)], live=False):
        pass
    (directory / ".lock").unlink()
    assert main(["log", "verify", str(directory)]) == OK
    assert not (directory / ".lock").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_foreign_directory_is_refused_and_left_as_it_is(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home" / "photos").mkdir(parents=True)
    (tmp_path / "home" / "dbus-1").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    for path in (tmp_path / "home", tmp_path / "home" / "dbus-1", tmp_path / "home" / "letter.txt", tmp_path / "no"):
        assert main(["log", command, str(path)]) == FAILED
        assert str(path) in sentence(capsys)
    assert content(tmp_path / "home") == {"letter.txt": b"dear"}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_path_is_not_the_working_directory(
    directory: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(directory)
    before = content(directory)
    assert main(["log", command, ""]) == FAILED
    assert "a path is empty" in sentence(capsys)
    assert content(directory) == before


def test_a_file_that_is_to_be_changed_stands_for_the_directory_it_lies_in(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logs_of(directory / "plain-0")[0]
    index = log.with_suffix(".index")
    index.write_bytes(b"\1\2\3")
    (directory / "recovery-point-offset-checkpoint").write_text("9")
    assert main(["log", "repair", "--json", str(index), str(log)]) == OK
    assert [item["file"] for item in lines(capsys)] == [str(index)]
    assert main(["log", "repair", "--json", str(directory / "recovery-point-offset-checkpoint")]) == OK
    assert [item["file"] for item in lines(capsys)] == [str(directory / "recovery-point-offset-checkpoint")]
    assert main(["log", "recover", "--json", str(log), str(index)]) == OK
    assert [(item["kind"], item["partition"]) for item in lines(capsys)] == [("recovered", "plain-0")]
    assert main(["log", "verify", str(directory)]) == OK


def test_the_line_of_a_file_counts_its_problems(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logs_of(directory / "plain-0")[0]
    flip(log, 30)
    assert main(["log", "verify", "--json", str(log)]) == FAILED
    counts = {item["kind"]: item["problems"] for item in lines(capsys) if item["kind"] in ("partition", "summary")}
    assert counts == {"partition": 1, "summary": 1}
    assert main(["log", "dump", str(log)]) == FAILED
    assert capsys.readouterr().err == "penstock: 1 problem was found\n"


@pytest.mark.parametrize("command", ["repair", "recover"])
def test_what_changes_things_takes_directories_of_its_own_only(
    directory: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "plain-0").rename(directory / "renamed")
    assert main(["log", command, str(directory / "renamed")]) == FAILED
    assert "TOPIC-PARTITION" in sentence(capsys)
    shutil.copytree(directory / "renamed", directory / "__cluster_metadata-0")
    assert main(["log", command, str(directory / "__cluster_metadata-0")]) == FAILED
    assert "leaves it alone" in sentence(capsys)


@pytest.mark.parametrize(
    "arguments", [[command] for command in COMMANDS] + [["repair", "--force"], ["recover", "--from-start"]]
)
def test_old_formats_are_refused_clearly_and_kept(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = make_old_directory(tmp_path / "old")
    before = content(directory)
    assert main(["log", *arguments, str(directory)]) == FAILED
    assert "format 0 or 1, which is not supported" in "".join(capsys.readouterr())
    assert content(directory) == before


@contextmanager
def as_owner(directory: Path) -> Iterator[None]:
    """As a user who owns these files and no others: root may read everything."""
    if not is_root():
        yield
        return
    for path in (directory, *directory.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_permission_is_one_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are root's alone, where root runs it
        os.chmod(folder, 0o755)
        directory = make_directory(Path(folder) / "logs")
        assert main(["log", command, str(directory)]) == OK, "and everything is imported that this user may not read"
        capsys.readouterr()
        partition = directory / "plain-0"
        partition.chmod(0)
        with as_owner(directory):
            assert main(["log", command, str(directory)]) == FAILED
        assert capsys.readouterr().err == f"penstock: {partition}: permission denied\n"
        partition.chmod(0o755)


@pytest.mark.parametrize("number", [13, 28], ids=["no permission", "full disk"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_failing_disk_is_one_sentence(
    directory: Path, command: str, number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.base import files

    def fail(_self: object, path: str) -> files.File:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(files.SystemFiles, "open_read", fail)
    (directory / ".kafka_cleanshutdown").unlink()
    assert main(["log", command, str(directory / "plain-0")]) == FAILED
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert ("permission denied" if number == 13 else "the disk is full") in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["log", "dump"],
        ["log", "dump", "--no-such-option", "x"],
        ["log", "dump", "--max-bytes", "many", "x"],
        ["log", "dump", "--max-batches", "0", "x"],
        ["log", "dump", "--decoder", "morse", "x"],
        ["log", "polish", "x"],
        ["polish"],
        ["log", "demo", "--records", "few"],
    ],
)
def test_a_wrong_call_is_one_sentence_and_a_code_of_its_own(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == USAGE
    assert "--help" in sentence(capsys)


def test_a_reader_that_goes_away_is_no_traceback(directory: Path) -> None:
    command = f"'{sys.executable}' -m penstock.cli log dump --deep --json '{directory}' | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_interpreted_kernels_are_told_in_one_line(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.records import kernels

    monkeypatch.setattr(kernels, "COMPILED", False)
    for command in COMMANDS:
        assert main(["log", command, str(directory)]) == OK
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "interpreted" in err
        assert "slower" in err


# Links.
@pytest.mark.parametrize("target", ["", "plain-0"])
def test_a_link_by_any_name_stands_for_what_it_leads_to_and_for_its_lock(
    directory: Path, tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "a link"
    link.symlink_to(directory / target)
    for command in COMMANDS:
        assert main(["log", command, str(link)]) == OK
    before = content(directory)
    with locked(directory):
        for command in COMMANDS:
            capsys.readouterr()
            assert main(["log", command, str(link)]) == FAILED
            assert "is in use by another process" in sentence(capsys)
    assert content(directory) == before


def test_a_partition_that_lies_behind_a_link_is_locked_where_the_link_lies(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "other disk"
    elsewhere.mkdir()
    (directory / "plain-0").rename(elsewhere / "plain-0")
    (directory / "plain-0").symlink_to(elsewhere / "plain-0")
    for command in COMMANDS:
        assert main(["log", command, str(directory)]) == OK
    with locked(directory):
        capsys.readouterr()
        assert main(["log", "repair", str(directory / "plain-0")]) == FAILED
        assert "is in use by another process" in sentence(capsys)
    assert main(["log", "repair", str(directory / "plain-0")]) == OK


@pytest.mark.parametrize("command", COMMANDS)
def test_a_partition_that_a_link_leads_to_is_locked_where_it_lies_too(
    directory: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_directory(tmp_path / "other")
    shutil.rmtree(other / "plain-0")
    (other / "plain-0").symlink_to(directory / "plain-0")
    with locked(directory):
        assert main(["log", command, str(other / "plain-0")]) == FAILED
        assert "is in use by another process" in sentence(capsys)


def test_a_recovery_that_is_refused_leaves_the_directory_clean(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "gone-0").symlink_to(directory / "not mounted")
    before = content(directory)
    assert main(["log", "recover", str(directory)]) == FAILED
    assert "gone-0 is a link that leads nowhere" in sentence(capsys)
    assert content(directory) == before
    assert (directory / ".kafka_cleanshutdown").exists()
