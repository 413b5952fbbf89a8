"""Links to brokers by their ids, each opened when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.peers.link import Link

OpenLink = Callable[[int], Link]
"""A link to a broker of this id, wherever it is."""


class Links:
    def __init__(self, open_link: OpenLink) -> None:
        self._open_link = open_link
        self._links: dict[int, Link] = {}

    def to(self, broker_id: int) -> Link:
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = self._open_link(broker_id)
        return link

    def give_up(self, broker_ids: Iterable[int]) -> None:
        """They are gone: what is on its way to them gets an error now, and not when it is overdue. One that hangs closes nothing."""
        for broker_id in broker_ids:
            link = self._links.pop(broker_id, None)
            if link is not None:
                link.give_up()

    def forget(self, broker_id: int) -> None:
        """What is on its way to it is not answered any more."""
        link = self._links.pop(broker_id, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        for broker_id in list(self._links):
            self.forget(broker_id)
