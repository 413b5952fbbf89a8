"""Follows configurations in a cluster's store: all of them at first and after every lost connection, then what is told to be new.

Whoever changes one adds a node under `/config/changes` that names it, in the same transaction (Kafka's way).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.steps import run_steps
from penstock.metadata import layout
from penstock.metadata.image import Image
from penstock.metadata.store import Create, Delete, Node, Operation, SessionState, Transaction

logger = logging.getLogger(__name__)

KEPT_MS = 15 * 60 * 1000
_PREFIX = f"{layout.CONFIG_CHANGES}/config_change_"
_PARENTS = {"topics": layout.TOPIC_CONFIGS, "brokers": layout.BROKER_CONFIGS}


def telling(transaction: Transaction) -> Transaction:
    """The same transaction, and the news of the configurations that it changes."""
    news: list[Operation] = []
    for operation in transaction.operations:
        for kind, parent in _PARENTS.items():
            if operation.path.startswith(f"{parent}/"):
                data = layout.encode_config_change(f"{kind}/{operation.path[len(parent) + 1 :]}")
                news.append(Create(path=_PREFIX, data=data, sequential=True))
    return Transaction(operations=(*transaction.operations, *news)) if news else transaction


class ConfigChanges:
    def __init__(self, store: ClusterStore, image: Image, clock: Clock, changed: Callable[[set[str]], object]) -> None:
        """`changed` hears of topics whose configuration changed; of all of them where a broker's did."""
        self._store = store
        self._image = image
        self._clock = clock
        self._changed = changed
        self._seen: set[str] = set()
        self._is_busy = False
        self._is_due = False
        self._is_behind = False

    async def load(self) -> None:
        """All of them, with a watch for what comes. StoreError where the store does not answer."""
        self._seen = set(await self._store.children(layout.CONFIG_CHANGES, watch=True))
        found: dict[str, dict[str, dict[str, str]]] = {}
        for kind, parent in _PARENTS.items():
            names = await self._store.children(parent)
            nodes = await self._store.all_data([f"{parent}/{name}" for name in names])
            found[kind] = {}
            for path, node in nodes.items():
                name = path[len(parent) + 1 :]
                found[kind][name] = self._decoded(path, node, self._kept(kind).get(name, {}))
        for kind, now in found.items():
            self._kept(kind).clear()
            self._kept(kind).update(now)

    def _kept(self, kind: str) -> dict[str, dict[str, str]]:
        return self._image.topic_configs if kind == "topics" else self._image.broker_configs

    @staticmethod
    def _decoded(path: str, node: Node, known: dict[str, str]) -> dict[str, str]:
        """What the node says; where that cannot be read, what is known stays, and every other configuration is followed as before."""
        try:
            return layout.decode_config(path, node.data)
        except PenstockError as error:
            logger.error("a configuration in the store has no effect until it is mended: %s", error)
            return known

    def start(self) -> None:
        """After the first `load`; what changed since is looked for."""
        self._store.on_watch(self._watched)
        self._store.on_session(self._session_changed)
        self._go(all_of_them=True)

    def _watched(self, path: str) -> None:
        if path == layout.CONFIG_CHANGES:
            self._go(all_of_them=False)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._go(all_of_them=True)

    def _go(self, *, all_of_them: bool) -> None:
        self._is_due = self._is_due or all_of_them or self._is_behind
        self._is_behind = False
        if self._is_busy:
            self._is_due = True
            return
        self._is_busy = True
        run_steps(self._follow(), lambda _none: self._followed())

    def _followed(self) -> None:
        self._is_busy = False
        if self._is_due:
            self._go(all_of_them=True)

    async def _follow(self) -> None:
        try:
            if self._is_due:
                self._is_due = False
                await self.load()
                self._changed({*self._image.topic_configs, *self._image.topics})
            else:
                await self._take_news()
        except PenstockError as error:
            self._is_behind = True
            logger.warning("configurations are read again with the next change, or when the store is back: %s", error)

    async def _take_news(self) -> None:
        names = await self._store.children(layout.CONFIG_CHANGES, watch=True)
        new = [name for name in names if name not in self._seen]
        self._seen = set(names)
        nodes = await self._store.all_data([f"{layout.CONFIG_CHANGES}/{name}" for name in new])
        touched: set[str] = set()
        for entity in dict.fromkeys(self._entity(path, node) for path, node in nodes.items()):
            kind, _, name = entity.partition("/")
            if kind in _PARENTS and name:
                touched |= await self._take(kind, name)
        self._changed(touched)
        await self._forget_old(names)

    @staticmethod
    def _entity(path: str, node: Node) -> str:
        """Whose configuration changed; nobody's where the notice cannot be read."""
        try:
            return layout.decode_config_change(path, node.data)
        except PenstockError as error:
            logger.error("a notice of a changed configuration has no effect: %s", error)
            return ""

    async def _take(self, kind: str, name: str) -> set[str]:
        path = f"{_PARENTS[kind]}/{name}"
        node = await self._store.data(path)
        kept = self._kept(kind)
        if node is None:
            kept.pop(name, None)
        else:
            kept[name] = self._decoded(path, node, kept.get(name, {}))
        return {name} if kind == "topics" else set(self._image.topics)

    async def _forget_old(self, names: tuple[str, ...]) -> None:
        """The oldest notice, where everybody has had time to see it: with each new one an old one goes."""
        if names:
            path = f"{layout.CONFIG_CHANGES}/{names[0]}"
            node = await self._store.data(path)
            if node is not None and self._clock.wall_ms() - node.stat.created_ms > KEPT_MS:
                await self._store.commit_one(Delete(path=path))
