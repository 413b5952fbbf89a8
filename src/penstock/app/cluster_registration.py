"""How a broker of a cluster enters the store: the nodes that must be there, the cluster's id, its own node.

A log directory, the first that works, remembers the last session's id in `.penstock-session`: a node of that session is this broker's own from
before a quick restart, and is removed (KAFKA-992, KAFKA-1029); any other owner is waited for, one session timeout, and then respected.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable

from penstock.base.clock import Clock
from penstock.base.errors import CorruptFileError, LogDirectoryError, PenstockError
from penstock.base.files import Files
from penstock.base.ids import topic_id_text
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.loop import Loop
from penstock.drivers.steps import Reply
from penstock.metadata import layout
from penstock.metadata.layout import BrokerNode
from penstock.metadata.store import (
    BadVersionError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    SetData,
    StoreError,
)
from penstock.storage import checkpoints
from penstock.storage.directory_contents import owner_of
from penstock.storage.directory_state import DirectoryState
from penstock.storage.log_directories import LogDirectories

logger = logging.getLogger(__name__)

SESSION_FILE = ".penstock-session"
_ASK_AGAIN_MS = 100
_GRACE_MS = 2_000
"""ZooKeeper ends a session at the tick after its timeout, and not to the millisecond."""


class BrokerIdTakenError(PenstockError):
    """Another process is registered under this broker's id."""


class ClusterRegistration:
    def __init__(
        self,
        *,
        store: ClusterStore,
        loop: Loop,
        clock: Clock,
        files: Files,
        session_timeout_ms: int,
        new_id: Callable[[], uuid.UUID],
    ) -> None:
        self._store = store
        self._loop = loop
        self._clock = clock
        self._files = files
        self._session_timeout_ms = session_timeout_ms
        self._new_id = new_id

    async def make_permanent_nodes(self) -> None:
        present = await self._store.all_data(list(layout.PERMANENT))
        for operation in layout.permanent_nodes(present):
            await self._make(operation)

    async def find_cluster_id(self, on_disk: str | None) -> str:
        """The cluster's id; the first broker of all gives it one. Directories of a cluster that the store knows nothing of are refused:
        none of their logs would be assigned to anybody there."""
        known = await self._store.data(layout.CLUSTER_ID)
        if known is None:
            if on_disk is not None:
                raise LogDirectoryError(
                    f"the log directories belong to cluster {on_disk}, and there is none at zookeeper.connect: "
                    "does that name the right servers and path?"
                )
            wanted = topic_id_text(self._new_id())
            await self._make(Create(path=layout.CLUSTER_ID, data=layout.encode_cluster_id(wanted)))
            known = await self._store.data(layout.CLUSTER_ID)
            assert known is not None
        return layout.decode_cluster_id(known.data)

    async def _make(self, operation: Create) -> None:
        outcome = await self._store.commit_one(operation)
        if isinstance(outcome, StoreError) and not isinstance(outcome, NodeExistsError):
            raise outcome

    async def new_broker_id(self, reserved_max: int) -> int:
        """A number that no broker was given before: how often the node was written."""
        while True:
            node = await self._store.data(layout.BROKER_SEQUENCE)
            assert node is not None, "it is made with the permanent nodes"
            version = node.stat.version
            outcome = await self._store.commit_one(
                SetData(path=layout.BROKER_SEQUENCE, data=node.data, version=version)
            )
            if not isinstance(outcome, StoreError):
                return reserved_max + version + 1
            if not isinstance(outcome, BadVersionError):
                raise outcome

    async def register(self, broker: BrokerNode, directories: Iterable[DirectoryState]) -> int:
        """Returns the epoch of this life of the broker."""
        states = list(directories)
        remembered = self._read_session(states)
        path = layout.broker_path(broker.broker_id)
        await self._remove_own(path, {remembered, self._store.session_id})
        # In this session it may have been elected already, and is not registered again for anything of the office.
        await self._remove_own(layout.CONTROLLER, {remembered} - {self._store.session_id})
        self._remember_session(states)
        data = layout.encode_broker(broker, self._clock.wall_ms())
        deadline_ms = self._clock.monotonic_ms() + self._session_timeout_ms + _GRACE_MS
        has_waited = False
        while True:
            outcome = await self._store.commit_one(Create(path=path, data=data, ephemeral=True))
            node = None if isinstance(outcome, StoreError) else await self._store.data(path)
            if node is not None:
                return node.stat.created_zxid
            if isinstance(outcome, StoreError) and not isinstance(outcome, NodeExistsError):
                raise outcome
            if self._clock.monotonic_ms() > deadline_ms:
                raise BrokerIdTakenError(
                    f"broker {broker.broker_id} is registered already by another process; give each its own broker.id"
                )
            if not has_waited:
                logger.info("waiting for the earlier registration of broker %d to end", broker.broker_id)
            has_waited = True
            await self._pause()

    async def _remove_own(self, path: str, session_ids: set[int]) -> None:
        node = await self._store.data(path)
        if node is not None and node.stat.ephemeral_owner in session_ids:
            outcome = await self._store.commit_one(Delete(path=path, version=node.stat.version))
            if isinstance(outcome, StoreError) and not isinstance(outcome, NoNodeError):
                raise outcome

    def _pause(self) -> Reply[None]:
        reply: Reply[None] = Reply()
        self._loop.call_later(_ASK_AGAIN_MS, lambda: reply.give(None))
        return reply

    def _read_session(self, states: Iterable[DirectoryState]) -> int:
        for state in states:
            if state.health.failure is None:
                with contextlib.suppress(OSError, ValueError):
                    return int(self._files.read(f"{state.path}/{SESSION_FILE}"))
        return 0

    def _remember_session(self, states: Iterable[DirectoryState]) -> None:
        """In the first directory that works; where none does, nobody is fooled but who waits for this session's end."""
        for state in states:
            if state.health.failure is None:
                try:
                    checkpoints.write_atomically(
                        self._files, f"{state.path}/{SESSION_FILE}", b"%d\n" % self._store.session_id
                    )
                except OSError as error:
                    state.health.fail(error)
                else:
                    return


def claim_directories(files: Files, directories: LogDirectories, node_id: int, cluster_id: str) -> None:
    """Writes whose directories these are, as ZooKeeper's Kafka does; refuses those of another cluster."""
    wanted = {"version": "0", "cluster.id": cluster_id, "broker.id": str(node_id)}
    for state in directories.directories:
        known = _meta_properties(files, state.path)
        if known.get("cluster.id", cluster_id) != cluster_id:
            raise LogDirectoryError(f"{state.path} belongs to cluster {known['cluster.id']}, this is {cluster_id}")
        if any(known.get(key) != value for key, value in wanted.items()):
            kept = {key: value for key, value in known.items() if key != "node.id"}
            checkpoints.write_meta_properties(files, state.path, {**kept, **wanted})


def cluster_id_on_disk(files: Files, directories: LogDirectories) -> str | None:
    for state in directories.directories:
        found = _meta_properties(files, state.path).get("cluster.id")
        if found:
            return found
    return None


def node_id_on_disk(files: Files, paths: Iterable[str]) -> int | None:
    """The number of the broker whose directories these are, as the first that knows has it. Before they are opened."""
    for path in paths:
        with contextlib.suppress(OSError, CorruptFileError):
            node_id = owner_of(files, path).node_id
            if node_id is not None and node_id.isdecimal():
                return int(node_id)
    return None


def _meta_properties(files: Files, path: str) -> dict[str, str]:
    try:
        return checkpoints.read_meta_properties(files, path)
    except FileNotFoundError:
        return {}
