"""The store's driver has the journal written anew when it has grown, and nobody notices."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.unit.handlers.failing_files import FailingFiles
from tests.unit.handlers.world import World

from penstock.metadata import embedded
from penstock.metadata.embedded import JOURNAL_NAME


def test_a_journal_that_outgrew_the_tree_is_written_anew_while_topics_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "REWRITE_BYTES_MIN", 4_000)
    world = World(tmp_path)
    sizes = []
    for number in range(60):
        world.create_topic(f"t{number}")
        world.services.topics.delete(world.image.topics[f"t{number}"], lambda error: None)
        world.loop.turn()
        sizes.append((tmp_path / JOURNAL_NAME).stat().st_size)
    world.create_topic("last")
    assert any(later < earlier for earlier, later in itertools.pairwise(sizes))
    assert max(sizes) < 20_000
    assert not (tmp_path / f"{JOURNAL_NAME}.new").exists()
    assert set(world.image.topics) == {"last"}


def test_a_draft_that_cannot_be_written_leaves_the_journal_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "REWRITE_BYTES_MIN", 4_000)
    files = FailingFiles()
    world = World(tmp_path, files=files)
    files.broken.add(str(tmp_path / f"{JOURNAL_NAME}.new"))
    for number in range(40):
        world.create_topic(f"t{number}")
        world.services.topics.delete(world.image.topics[f"t{number}"], lambda error: None)
        world.loop.turn()
    world.create_topic("last")
    assert set(world.image.topics) == {"last"}
