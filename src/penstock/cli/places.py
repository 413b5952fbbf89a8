"""The paths of a command line, looked at before anything is done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from penstock.base.errors import LogDirectoryError
from penstock.base.files import Files
from penstock.storage import names
from penstock.storage.inspect.places import (
    DirectoryPlace,
    FilePlace,
    PartitionPlace,
    Place,
    file_place,
    find_place,
    home_of,
    is_kafkas_own,
)


def find_all(files: Files, paths: list[str]) -> list[Place]:
    if "" in paths:  # an unset variable, which would mean the working directory
        raise LogDirectoryError("a path is empty; name a log directory, a partition's directory or a file")
    return [find_place(files, _named(os.path.abspath(path))) for path in paths]


def _named(path: str) -> str:
    """A link by any name stands for what it leads to, which is called as a log's things are called."""
    is_known = names.parse_partition_directory(os.path.basename(path)) is not None or file_place(path) is not None
    return os.path.realpath(path) if os.path.islink(path) and not is_known else path


def find_directories(files: Files, paths: list[str], verb: str) -> list[PartitionPlace | DirectoryPlace]:
    """For commands that change things: whole directories, each of them once. A file stands for the one it lies in, since
    its neighbours tell what it should hold."""
    places: dict[str, PartitionPlace | DirectoryPlace] = {}
    for found in find_all(files, paths):
        place = find_place(files, found.directory) if isinstance(found, FilePlace) else found
        assert not isinstance(place, FilePlace), "a file lies in a directory"
        if isinstance(place, PartitionPlace) and place.partition is None:
            raise LogDirectoryError(f"{place.path} is not called TOPIC-PARTITION; rename it before you {verb} it")
        if isinstance(place, PartitionPlace) and is_kafkas_own(place):
            raise LogDirectoryError(f"{place.path} is the metadata log of a Kafka controller; {verb} leaves it alone")
        places[place.path] = place
    return list(places.values())


def homes(files: Files, places: Sequence[Place]) -> list[str]:
    """The log directories in which the places lie, each once: where a path says, and where its links lead."""
    found = [home_of(files, place) for place in places]
    found += [home_of(files, replace(place, path=os.path.realpath(place.path))) for place in places]
    return list({os.path.realpath(home): home for home in reversed(found) if home is not None}.values())[::-1]


def home(files: Files, place: Place) -> str | None:
    """The log directory whose marker and checkpoints speak of the place."""
    return next(iter(homes(files, [place])), None)
