"""Apache Kafka from its jars: its tools as functions, and a broker that starts, dies and starts again.

4.3 runs as one KRaft node, 3.9 with a ZooKeeper beside it, or as a member of a cluster where `zookeeper_connect` names
one. A broker owns a data directory:

    data_dir/logs               `log.dirs`; with KRaft its metadata log too, where Kafka puts it by default
    data_dir/zookeeper          only 3.9
    data_dir/server.properties  written anew at every start, so that a copied directory starts where it stands
    data_dir/kafka.log          what the broker says, all starts; `kafka_log` reads it
"""

import functools
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tools.fetch_judges import kafka_libs
from tools.java import ensure_java_home

from tests.support import kafka_log
from tests.support.processes import Child, free_port, wait_until

VERSIONS = ("3.9", "4.3")
NODE_ID = 1
CLUSTER_ID = "penstock-judge-00000w"

# For small brokers that live for seconds: a quick start counts for more than the speed after a minute.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
# Kafka's own, for benches; with `heap_mb=1024`.
STOCK_JVM = (
    "-Xms1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
# The rest of what Kafka is by its own `server.properties` and defaults, where the tests' brokers are smaller.
STOCK_PROPERTIES: Mapping[str, str | int] = {
    "num_network_threads": 3,
    "num_io_threads": 8,
    "socket_send_buffer_bytes": 100 * 1024,
    "socket_receive_buffer_bytes": 100 * 1024,
    "log_cleaner_dedupe_buffer_size": 128 * 1024 * 1024,
    "offsets_topic_num_partitions": 50,
    "transaction_state_log_num_partitions": 50,
}

_PARTITION = re.compile(r"^(.+)-(\d+)$")
_SMALL = {
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
}


class ToolFailed(Exception):
    """A tool of Kafka ended with an error; the message is what it said."""


@functools.cache
def java() -> str:
    return str(ensure_java_home() / "bin" / "java")


@functools.cache
def _can_compile() -> bool:
    listed = subprocess.run([java(), "--list-modules"], capture_output=True, text=True, check=True).stdout
    return "jdk.compiler" in listed


def java_command(version: str, main: str, *, flags: Sequence[str] = QUICK_JVM, heap_mb: int = 256) -> list[str]:
    """The command that runs a main class of Kafka `version`; arguments follow."""
    heap = f"-Xmx{heap_mb}m"
    return [java(), heap, *flags, *kafka_log.SLF4J_FLAGS, "-cp", f"{kafka_libs(version)}/*", main]


def run_main(version: str, main: str, *arguments: str | Path, stdin: str = "", seconds: float = 120) -> str:
    """Runs a main class to its end and returns what it printed; the log goes to stderr and is not in it."""
    ran = subprocess.run(
        [*java_command(version, main), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if ran.returncode != 0:
        raise ToolFailed(f"{main} ended with {ran.returncode}:\n{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}")
    return ran.stdout


def run_mains(version: str, *commands: Sequence[str | Path], seconds: float = 180) -> list[str]:
    """Runs main classes of Kafka with their arguments one after another in one JVM; what each of them printed."""
    if not _can_compile():  # a runtime without a compiler, as the wheel's: a JVM for each
        return [run_main(version, str(main), *arguments) for main, *arguments in commands]
    lines = "".join("\x1f".join(map(str, command)) + "\n" for command in commands)
    command = java_command(version, str(Path(__file__).with_name("RunMains.java")))
    ran = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=seconds, check=False)
    printed = []
    for command_and_arguments, part in zip(commands, ran.stdout.split("\x1d")[:-1], strict=False):
        text, _, code = part.rpartition("\x1e")
        if code != "0":
            raise ToolFailed(f"{command_and_arguments} ended with {code}:\n{text[-4000:]}\n{ran.stderr[-4000:]}")
        printed.append(text)
    if len(printed) < len(commands):
        raise ToolFailed(f"{len(printed)} of {len(commands)} tools ran:\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}")
    return printed


def led_partitions(port: int) -> set[str] | None:
    """The `topic-partition`s with a leader, by a broker's Metadata; None while it knows no broker or no controller."""
    request = struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">i?", -1, False)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            size = struct.unpack(">i", _receive(connection, 4))[0]
            answer = _Reader(_receive(connection, size))
    except OSError:
        return None
    answer.number("i"), answer.number("i")  # correlation id, throttle time
    brokers = [(answer.number("i"), answer.text(), answer.number("i"), answer.text()) for _ in answer.array()]
    answer.text()  # cluster id
    if not brokers or answer.number("i") < 0:
        return None
    found = set()
    for _topic in answer.array():
        answer.number("h")
        name = answer.text()
        answer.number("b")
        for _partition in answer.array():
            error, number, leader = answer.number("h"), answer.number("i"), answer.number("i")
            for _list in ("replicas", "in sync"):
                for _node in answer.array():
                    answer.number("i")
            if error == 0 and leader >= 0:
                found.add(f"{name}-{number}")
    return found


class _Reader:
    """Reads an answer in Kafka's older encoding from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, kind: str) -> int:
        value: int = struct.unpack_from(f">{kind}", self._data, self._at)[0]
        self._at += struct.calcsize(f">{kind}")
        return value

    def text(self) -> str:
        size = max(0, self.number("h"))
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def array(self) -> range:
        return range(self.number("i"))


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("closed in the middle of an answer")
        received += part
    return bytes(received)


def partitions_on_disk(log_dir: Path) -> dict[str, tuple[str, int]]:
    """The topic and number of every partition directory, KRaft's own log aside, by the directory's name."""
    found = {}
    for path in sorted(log_dir.iterdir()):
        match = _PARTITION.match(path.name)
        if path.is_dir() and match and match[1] != "__cluster_metadata":
            found[path.name] = (match[1], int(match[2]))
    return found


class KafkaBroker:
    """One broker of a version on a data directory, which may be new or one that such a broker left.

    Server properties are keyword arguments with `_` for `.`: `KafkaBroker("4.3", path, log_segment_bytes=1 << 20)`.
    Leaving the `with` block stops the broker cleanly, or kills it when the block raised.
    """

    def __init__(
        self,
        version: str,
        data_dir: Path,
        *,
        heap_mb: int = 512,
        jvm_flags: Sequence[str] = QUICK_JVM,
        **server_properties: str | int,
    ) -> None:
        assert version in VERSIONS
        self._secure: dict[str, str] = {}
        self.ports: dict[str, int] = {}
        self.version = version
        self.data_dir = data_dir.resolve()
        self.log_dir = self.data_dir / "logs"
        self.output = self.data_dir / "kafka.log"
        self.port = free_port()
        self._controller_port = free_port()
        self._zookeeper_port = free_port()
        self._properties = {name.replace("_", "."): value for name, value in server_properties.items()}
        self._heap_mb = heap_mb
        self._jvm_flags = tuple(jvm_flags)
        self._broker: Child | None = None
        self._zookeeper: Child | None = None

    @property
    def _is_member(self) -> bool:
        """Of a cluster, whose ZooKeeper somebody else runs."""
        return "zookeeper.connect" in self._properties

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._broker is not None
        return self._broker.pid

    def listen(self, name: str, protocol: str) -> None:
        """From the next start on there is a listener beside the plain one; `ports` has its port."""
        self._secure[name] = protocol
        self.ports[name] = free_port()

    def start(self, *, seconds: float = 120) -> Self:
        """Starts, and returns when the broker answers and leads every partition that it has on disk."""
        assert self._broker is None
        self.log_dir.mkdir(parents=True, exist_ok=True)
        if self.version == "3.9" and not self._is_member:
            self._start_zookeeper()
        config = self._write_config()
        if self.version == "4.3" and not (self.log_dir / "meta.properties").exists():
            run_main(self.version, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", config)
        command = java_command(self.version, "kafka.Kafka", flags=self._jvm_flags, heap_mb=self._heap_mb)
        starts_before = len(self.starts()) if self.output.exists() else 0
        kafka_log.mark_start(self.output)
        self._broker = Child([*command, config], output=self.output)
        try:
            wait_until(self._is_ready, seconds=seconds, what=f"Kafka {self.version} answers")
            # It answers a little before it says that it has started, and `starts` is to tell of this start.
            wait_until(lambda: len(self.starts()) > starts_before, seconds=seconds, what="Kafka has started")
        except BaseException:
            self.kill9()
            raise
        return self

    def stop(self) -> None:
        """A controlled shutdown: the clean marker is written."""
        if self._broker is not None:
            self._broker.stop()
            self._broker = None
        self._stop_zookeeper()

    def kill9(self) -> None:
        """Kills the broker at once; its directory is left as a crash of the process leaves it."""
        if self._broker is not None:
            self._broker.kill9()
            self._broker = None
        self._stop_zookeeper()

    def restart(self) -> None:
        self.stop()
        self.start()

    def tool(self, main: str, *arguments: str | Path) -> str:
        """Runs a tool of the same version against this broker."""
        return run_main(self.version, main, "--bootstrap-server", self.bootstrap_servers, *arguments)

    def starts(self) -> list[kafka_log.Start]:
        return kafka_log.starts(self.output)

    def cleanings(self) -> list[kafka_log.Cleaning]:
        return kafka_log.cleanings(self.output)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill9()

    def _is_ready(self) -> bool:
        assert self._broker is not None
        self._broker.check_alive()
        led = led_partitions(self.port)
        return led is not None and (self._is_member or led >= set(partitions_on_disk(self.log_dir)))

    def _write_config(self) -> Path:
        properties: dict[str, str | int] = {**_SMALL, "log.dirs": str(self.log_dir)}
        if self.version == "4.3":
            properties |= {
                "process.roles": "broker,controller",
                "node.id": NODE_ID,
                # After a kill the controller waits this long before it lets the broker in again; 9 s by default.
                "broker.session.timeout.ms": 2000,
                "broker.heartbeat.interval.ms": 500,
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{self._controller_port}",
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "share.coordinator.state.topic.num.partitions": 1,
                "share.coordinator.state.topic.replication.factor": 1,
                "share.coordinator.state.topic.min.isr": 1,
            }
        else:
            properties |= {
                "broker.id": NODE_ID,
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
            }
        if self._secure:
            more = "".join(f",{name}://127.0.0.1:{self.ports[name]}" for name in self._secure)
            for key in ("listeners", "advertised.listeners"):
                properties[key] = f"{properties[key]}{more}"
            protocols = "".join(f",{name}:{protocol}" for name, protocol in self._secure.items())
            properties["listener.security.protocol.map"] = f"{properties['listener.security.protocol.map']}{protocols}"
            properties["inter.broker.listener.name"] = "PLAINTEXT"
        return _write_properties(self.data_dir / "server.properties", properties | self._properties)

    def _start_zookeeper(self) -> None:
        data = self.data_dir / "zookeeper"
        data.mkdir(exist_ok=True)
        config = _write_properties(
            self.data_dir / "zookeeper.properties",
            {
                "dataDir": str(data),
                "clientPort": self._zookeeper_port,
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
                "4lw.commands.whitelist": "*",
            },
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = java_command(self.version, main, flags=(*QUICK_JVM, "-Dzookeeper.forceSync=no"), heap_mb=128)
        self._zookeeper = Child([*command, config], output=self.data_dir / "zookeeper.log")
        wait_until(self._zookeeper_is_ready, seconds=60, what="ZooKeeper answers")
        # A killed broker's session lives on for many seconds, and a new broker refuses to start beside it.
        ephemerals = [line.strip() for line in self._ask_zookeeper("dump").splitlines() if line.startswith("\t/")]
        if ephemerals:
            deletes = "".join(f"delete {path}\n" for path in ephemerals)
            address = f"127.0.0.1:{self._zookeeper_port}"
            run_main("3.9", "org.apache.zookeeper.ZooKeeperMain", "-server", address, stdin=deletes)

    def _zookeeper_is_ready(self) -> bool:
        assert self._zookeeper is not None
        self._zookeeper.check_alive()
        # It says "imok" before it has read its data, and a dump only after.
        return "ephemeral nodes dump" in self._ask_zookeeper("dump")

    def _ask_zookeeper(self, word: str) -> str:
        try:
            with socket.create_connection(("127.0.0.1", self._zookeeper_port), timeout=2) as connection:
                connection.sendall(word.encode())
                with connection.makefile("rb") as answer:
                    return answer.read().decode()
        except OSError:
            return ""

    def _stop_zookeeper(self) -> None:
        if self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper = None


def copy_data_dir(source: Path, target: Path) -> Path:
    """Copies a broker's data directory without what it said, sparse files kept sparse where the system can."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("kafka.log", "zookeeper.log", ".lock"))
    return target


def _write_properties(path: Path, properties: dict[str, str | int]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in sorted(properties.items())))
    return path
