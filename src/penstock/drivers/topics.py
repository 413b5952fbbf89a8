"""Carries topic decisions to the store and answers when they are confirmed."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from penstock.base.errors import PenstockError
from penstock.controller.configs import decide_broker_config
from penstock.controller.topics import (
    NewTopic,
    TopicDecision,
    TopicDefaults,
    decide_config,
    decide_create,
    decide_delete,
    decide_grow,
    decide_mark_deleted,
)
from penstock.drivers.store import Submitter
from penstock.metadata.image import Image, TopicImage
from penstock.metadata.store import Committed, NodeExistsError, Refused, StoreError, Transaction

Confirmed = Callable[[PenstockError | None], object]
Change = Callable[[Callable[[], None]], object]
"""Decides and writes something; calls what it is given when that is confirmed, or need not be."""


class TopicDriver:
    def __init__(
        self,
        image: Image,
        store: Submitter,
        defaults: TopicDefaults,
        new_id: Callable[[], uuid.UUID],
        is_every_log_here: Callable[[], bool] = lambda: True,
    ) -> None:
        self._image = image
        self._store = store
        self._new_id = new_id
        self._is_every_log_here = is_every_log_here
        self._changes: deque[Change] = deque()
        self._is_changing = False
        self._is_beginning = False
        self.defaults = defaults

    def in_turn(self, change: Change) -> None:
        """Lets changes of what is there already follow each other: each is decided on what the one before has written."""
        self._changes.append(change)
        self._begin_next()

    def _begin_next(self) -> None:
        if self._is_beginning:
            return
        self._is_beginning = True
        while self._changes and not self._is_changing:
            self._is_changing = True
            self._changes.popleft()(self._changed)
        self._is_beginning = False

    def _changed(self) -> None:
        self._is_changing = False
        self._begin_next()

    def decide(self, wanted: NewTopic) -> TopicDecision:
        """Whether it could be made; nothing happens yet."""
        return decide_create(self._image, wanted, self.defaults, self._new_id)

    def create(self, decision: TopicDecision, confirmed: Confirmed) -> None:
        self._store.submit(decision.transaction, lambda event: confirmed(_error(event)))

    def decide_grow(self, topic: TopicImage, count: int, assignments: Sequence[tuple[int, ...]] | None) -> Transaction:
        return decide_grow(self._image, topic, count, assignments)

    def decide_config(self, topic: TopicImage, config: Mapping[str, str]) -> Transaction:
        return decide_config(self._image, topic, config)

    def decide_broker_config(self, entity: str, config: Mapping[str, str]) -> Transaction:
        return decide_broker_config(self._image, entity, config)

    def submit(self, transaction: Transaction, confirmed: Confirmed) -> None:
        self._store.submit(transaction, lambda event: confirmed(_error(event)))

    def change_config(self, path: str, decide: Callable[[], Transaction], confirmed: Confirmed) -> None:
        """Decides on the configuration at `path` as the store has it, and writes that; what `decide` raises is confirmed as refused."""
        del path  # nobody else writes here: the image is what the store has
        try:
            decided = decide()
        except PenstockError as error:
            confirmed(error)
        else:
            self.submit(decided, confirmed)

    def delete(self, topic: TopicImage, confirmed: Confirmed) -> None:
        """Marks it, which takes its logs away, and then removes what the tree says of it."""

        def marked(event: Committed | Refused) -> None:
            if isinstance(event, Committed) or isinstance(event.error, NodeExistsError):
                self._finish_deletion(topic, confirmed)
            else:
                confirmed(event.error)

        self._store.submit(decide_mark_deleted(topic), marked)

    def _finish_deletion(self, topic: TopicImage, confirmed: Confirmed) -> None:
        def removed(event: Committed | Refused) -> None:
            present = self._image.topics.get(topic.name)
            if isinstance(event, Refused) and present is not None and present.topic_id == topic.topic_id:
                self._finish_deletion(topic, confirmed)  # it grew meanwhile
            else:
                confirmed(None)

        decided = decide_delete(self._image, topic.name, logs_are_gone=self._is_every_log_here())
        self._store.submit(decided, removed)


def _error(event: Committed | Refused) -> StoreError | None:
    return event.error if isinstance(event, Refused) else None
