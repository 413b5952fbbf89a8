"""The commands that speak to a cluster, against a broker in this process."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.processes import wait_until

from penstock.cli.main import main
from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(broker: Broker, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> Run:
    """Runs a command; its exit code, stdout and stderr."""
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap_servers)

    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main(arguments)
        sys.stdout.flush()
        said = capfdbinary.readouterr()
        return code, said.out.decode(errors="backslashreplace"), said.err.decode()

    return call


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_topic_is_made_seen_changed_and_gone(run: Run) -> None:
    assert run("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=1000")[0] == 0
    code, _, said = run("topics", "create", "life")
    assert (code, said) == (1, "penstock: life: TOPIC_ALREADY_EXISTS (topic life exists already)\n")
    (row,) = [one for one in objects(run("topics", "list", "--json")[1]) if one["topic"] == "life"]
    assert (row["partitions"], row["replication_factor"], row["internal"]) == (2, 1, False)
    assert run("topics", "alter", "life", "--partitions", "3", "--config", "cleanup.policy=compact")[0] == 0
    described = objects(run("topics", "describe", "life", "--json")[1])
    assert [(one["partition"], one["leader"], one["start_offset"], one["end_offset"]) for one in described] == [
        (number, 1, 0, 0) for number in range(3)
    ]
    shown = {one["key"]: one["value"] for one in objects(run("configs", "show", "topic", "life", "--json")[1])}
    assert shown == {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert run("topics", "alter", "life", "--unset", "retention.ms")[0] == 0
    assert "retention.ms" not in run("configs", "show", "topic", "life")[1]
    assert run("topics", "delete", "life")[0] == 0
    code, _, said = run("topics", "describe", "life")
    assert code == 1
    assert "has no topic life" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "many", "--partitions", "2147483648"),
        ("create", "many", "--partitions", "-99999999999"),
        ("create", "many", "--replication-factor", "32768"),
        ("alter", "many", "--partitions", "2147483648"),
    ],
)
def test_a_number_that_the_wire_has_no_room_for_is_a_mistake(run: Run, arguments: tuple[str, ...]) -> None:
    code, _, said = run("topics", *arguments)
    assert code == 2
    assert arguments[2] in said
    assert len(said.splitlines()) == 1


def test_a_partition_whose_end_nobody_can_tell_for_now_hides_nothing_else(broker: Broker, run: Run) -> None:
    assert run("topics", "create", "quiet")[0] == 0
    broker.faults.fail("ListOffsets", "offset_not_available", times=3)  # its start twice, its end once
    (row,) = objects(run("topics", "describe", "quiet", "--json")[1])
    assert (row["leader"], row["start_offset"], row["end_offset"]) == (1, None, 0)


def test_what_is_produced_is_consumed(run: Run) -> None:
    run("topics", "create", "way", "--partitions", "2")
    code, _, said = run("produce", "way", "-k", ":", "-H", "from=here", stdin="a:1\nb:2\r\nc:with:colon\n")
    assert (code, said) == (0, "3 records written to way\n")
    line = {"key": {"base64": "/w=="}, "value": {"x": 1}, "headers": {"h": "v"}, "partition": 1, "timestamp": 5}
    code, _, said = run("produce", "way", "--json", "--codec", "zstd", stdin=json.dumps(line) + "\n")
    assert (code, said) == (0, "1 record written to way\n")
    found = objects(run("consume", "way", "--json")[1])
    by_value = {one["value"]: one for one in found}
    assert by_value.keys() == {"1", "2", "with:colon", '{"x": 1}'}
    assert by_value["1"]["headers"] == [{"key": "from", "value": "here"}]
    last = by_value['{"x": 1}']
    assert (last["key"], last["partition"], last["timestamp"], last["headers"]) == (
        {"base64": "/w=="}, 1, 5, [{"key": "h", "value": "v"}],
    )  # fmt: skip
    assert set(run("consume", "way", "-K")[1].splitlines()) == {"a\t1", "b\t2", "c\twith:colon", '\\xff\t{"x": 1}'}


def test_a_range_is_named_by_offsets_and_by_times(run: Run) -> None:
    run("topics", "create", "range")
    lines = "".join(json.dumps({"value": str(n), "timestamp": 1_700_000_000_000 + 1000 * n}) + "\n" for n in range(10))
    run("produce", "range", "--json", stdin=lines)

    def values(*arguments: str) -> list[str]:
        return run("consume", "range", *arguments)[1].split()

    assert values() == [str(n) for n in range(10)]
    assert values("--from", "3", "--until", "5") == ["3", "4"]
    assert values("--from", "2023-11-14T22:13:27", "--until", "2023-11-14T22:13:29Z") == ["7", "8"]
    assert values("--from", "2023-11-14T23:13:27+01:00", "--max", "1") == ["7"]
    assert values("--from", "latest") == []
    assert values("--from", "99") == []
    assert values("--from", "1950-01-01", "--max", "1") == ["0"]
    assert values("--until", "1969-12-31T23:59:59.999Z") == []
    code, _, said = run("consume", "range", "--from", "yesterday")
    assert code == 2
    assert "write earliest, latest, an offset, or a time" in said


@pytest.mark.parametrize(
    ("arguments", "line", "reason"),
    [
        (("--json",), "{", "line 2 is no JSON"),
        (("--json",), "[1]", "line 2: an object with"),
        (("--json",), '{"valeu": 1}', "line 2: an object with"),
        (("--json",), '{"value": {"base64": "?"}}', "line 2: "),
        (("--json",), '{"value": "x", "partition": 7}', "line 2: topic bad has partitions 0 to 0, not 7"),
        (("--json",), '{"value": "x", "partition": "0"}', 'line 2: partition is "0", and must be an integer'),
        (("--json",), '{"value": "x", "partition": true}', "line 2: partition is true"),
        (("--json",), '{"value": "x", "timestamp": 9223372036854775808}', "line 2: timestamp is 9223372036854775808"),
        (("--json",), '{"value": "x", "headers": {"\\ud800": "v"}}', "line 2: "),
        (("--json",), '{"value": "\\ud800"}', "line 2: "),
        (("--json",), '{"headers": [1]}', "line 2: headers are"),
        (("--json",), '{"headers": [{"value": 1}]}', "line 2: headers are"),
        (("--json",), "[" * 100_000, "line 2 is no JSON"),
        (("-k", ":"), "nothing", "line 2 has no ':' between key and value"),
        (("-p", "9"), "x", "has partitions 0 to 0, not 9"),
    ],
)
def test_a_bad_line_is_named_by_its_number(run: Run, arguments: tuple[str, ...], line: str, reason: str) -> None:
    run("topics", "create", "bad")
    good = '{"value": "ok"}' if arguments == ("--json",) else "a:b"
    code, _, said = run("produce", "bad", *arguments, stdin=f"{good}\n{line}\n")
    assert code == 1
    assert reason in said
    assert len(said.splitlines()) == 1


def test_what_is_consumed_as_json_can_be_produced_again(run: Run) -> None:
    for topic in ("here", "there"):
        run("topics", "create", topic, "--partitions", "2")
    line = '{"key": {"base64": "/w=="}, "value": null, "headers": {"h": "1"}, "partition": 1, "timestamp": 7}'
    run("produce", "here", "--json", stdin=line)
    copied = run("consume", "here", "--json")[1]
    assert run("produce", "there", "--json", stdin=copied)[0] == 0
    assert run("consume", "there", "--json")[1] == copied.replace('"here"', '"there"')


def test_a_header_may_stand_twice(run: Run) -> None:
    run("topics", "create", "headers")
    assert run("produce", "headers", "-H", "a=1", "-H", "a=2", stdin="x\n")[0] == 0
    (record,) = objects(run("consume", "headers", "--json")[1])
    assert [(one["key"], one["value"]) for one in record["headers"]] == [("a", "1"), ("a", "2")]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("produce", "t", "-k", ""), 2, "--key-separator is empty"),
        (("topics", "create", "\udcff"), 1, r"'\udcff' is no text"),
        (("groups", "describe", "\udcff"), 1, r"'\udcff' is no text"),
    ],
)
def test_what_cannot_be_sent_is_one_sentence(run: Run, arguments: tuple[str, ...], code: int, reason: str) -> None:
    said = run(*arguments)
    assert said[0] == code
    assert reason in said[2]
    assert len(said[2].splitlines()) == 1


def test_what_stood_before_a_bad_line_is_written_and_counted(run: Run) -> None:
    run("topics", "create", "half")
    code, _, said = run("produce", "half", "-k", ":", stdin="a:1\nb:2\nnothing\nc:3\n")
    assert code == 1
    assert said == "penstock: line 3 has no ':' between key and value (2 records before it were written)\n"
    assert run("consume", "half")[1].split() == ["1", "2"]


def test_a_record_as_large_as_the_topic_allows_goes_through_behind_small_ones(run: Run) -> None:
    run("topics", "create", "large")
    code, _, said = run("produce", "large", stdin="x" * 400_000 + "\n" + "y" * 900_000 + "\nz\n")
    assert (code, said) == (0, "3 records written to large\n")
    assert [len(line) for line in run("consume", "large")[1].split()] == [400_000, 900_000, 1]
    code, _, said = run("produce", "large", stdin="x" * 1_100_000 + "\n")
    assert code == 1
    assert "MESSAGE_TOO_LARGE" in said
    assert said.endswith("(0 records had been written)\n")
    assert len(said.splitlines()) == 1


def test_a_groups_offsets_are_shown_reset_and_forgotten(run: Run) -> None:
    run("topics", "create", "read", "--partitions", "2")
    run("produce", "read", "-p", "0", stdin="a\nb\nc\n")
    code, _, said = run("groups", "reset", "readers", "--to", "latest")
    assert code == 1
    assert "has committed nothing" in said
    assert run("groups", "reset", "readers", "--to", "1", "--topic", "read:0")[0] == 0
    assert [one["group"] for one in objects(run("groups", "list", "--json")[1])] == ["readers"]
    (row,) = objects(run("groups", "describe", "readers", "--json")[1])
    assert (row["topic"], row["partition"], row["committed_offset"], row["end_offset"], row["lag"]) == (
        "read", 0, 1, 3, 2,
    )  # fmt: skip
    rows = objects(run("groups", "reset", "readers", "--to", "latest", "--topic", "read", "--dry-run", "--json")[1])
    assert [(one["before"], one["after"]) for one in rows] == [(1, 3), (None, 0)]
    assert objects(run("groups", "describe", "readers", "--json")[1])[0]["committed_offset"] == 1
    assert run("groups", "delete", "readers")[0] == 0
    assert run("groups", "describe", "readers")[2] == "penstock: there is no group readers\n"
    assert (
        run("groups", "reset", "x", "--to", "1", "--topic", "read:9")[2] == "penstock: topic read has no partition 9\n"
    )


def test_what_others_called_their_groups_does_not_speak_to_the_terminal(run: Run) -> None:
    # A18
    run("topics", "create", "named")
    assert run("groups", "reset", "\x1b[2Jgone\n", "--to", "earliest", "--topic", "named")[0] == 0
    shown = run("groups", "list")[1]
    assert "\\x1b[2Jgone\\n " in shown
    assert "\x1b" not in shown
    assert run("groups", "delete", "\x1b[2Jgone\n")[0] == 0


def test_a_brokers_configuration_is_changed_while_it_runs(run: Run) -> None:
    assert run("configs", "set", "broker", "default", "log.retention.ms=7")[0] == 0
    shown = {one["key"]: one for one in objects(run("configs", "show", "broker", "1", "--json")[1])}
    assert (shown["log.retention.ms"]["value"], shown["log.retention.ms"]["source"]) == ("7", "dynamic_default_broker")
    assert run("configs", "unset", "broker", "default", "log.retention.ms")[0] == 0
    code, _, said = run("configs", "set", "topic", "none-such", "retention.ms=x")
    assert code == 1
    assert len(said.splitlines()) == 1
    code, _, said = run("configs", "show", "broker", "one")
    assert code == 2
    assert "is no broker" in said


def test_a_cluster_that_is_not_there_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.cluster._PATIENCE", {"default.api.timeout.ms": "1"})
    code, _, said = run("topics", "list", "-b", "127.0.0.1:1")
    assert code == 1
    assert len(said.splitlines()) == 1
    assert "127.0.0.1:1" in said


def test_a_line_arrives_before_the_next_one_comes(broker: Broker, run: Run) -> None:
    run("topics", "create", "rare")
    command = [sys.executable, "-m", "penstock.cli", "produce", "rare", "-b", broker.bootstrap_servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as producer:
        assert producer.stdin is not None
        assert producer.stderr is not None
        producer.stdin.write("a\nb")
        producer.stdin.flush()
        wait_until(lambda: run("consume", "rare")[1] == "a\n", seconds=60, what="the line is there")
        producer.stdin.close()
        assert producer.stderr.read() == "2 records written to rare\n"
    assert run("consume", "rare")[1] == "a\nb\n"


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_a_stream_that_is_closed_is_like_one_that_is_empty(broker: Broker, run: Run, stream: int) -> None:
    run("topics", "create", "closed")
    program = f"import os, sys; os.close({stream}); os.execv(sys.argv[1], sys.argv[1:])"
    for command, said in (("produce", "0 records written to closed\n"), ("consume", "")):
        options = ["-m", "penstock.cli", command, "closed", "-b", broker.bootstrap_servers]
        started = [sys.executable, "-c", program, sys.executable, *options]
        ran = subprocess.run(started, capture_output=True, text=True, timeout=60, check=False, input="")
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "" if stream == 2 else said)


@pytest.mark.parametrize(
    ("topic", "code", "said"),
    [
        ("t:x", 2, "write TOPIC or TOPIC:PARTITION"),
        ("t:²", 2, "write TOPIC or TOPIC:PARTITION"),
        ("t:-1", 2, "write TOPIC or TOPIC:PARTITION"),
        ("t:", 2, "write TOPIC or TOPIC:PARTITION"),
        (":3", 2, "write TOPIC or TOPIC:PARTITION"),
        ("", 2, "write TOPIC or TOPIC:PARTITION"),
        ("elected:99999999999", 1, "topic elected has no partition 99999999999"),
        ("elected:1", 1, "topic elected has no partition 1"),
        ("nowhere:0", 1, "has no topic nowhere"),
    ],
)
def test_what_cannot_be_elected_is_said_in_one_sentence(run: Run, topic: str, code: int, said: str) -> None:
    run("topics", "create", "elected", "--partitions", "1")
    ended, out, sentence = run("elect", "preferred", "--topic", topic)
    assert (ended, out, sentence.count("\n")) == (code, "", 1)
    assert said in sentence


def test_who_leads_where_it_should_is_left_alone(run: Run) -> None:
    run("topics", "create", "elected", "--partitions", "1")
    for kind in ("preferred", "unclean"):
        said = run("elect", kind, "--topic", "elected:0", "--topic", "elected")
        assert said == (0, "no partition needed another leader\n", "")
        assert run("elect", kind, "--topic", "elected", "--json") == (0, "", "")
