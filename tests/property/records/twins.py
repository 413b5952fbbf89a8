"""The kernels twice: as the build made them, and from the same files by the interpreter."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import penstock.protocol
import penstock.records
from penstock.protocol import short_kernels
from penstock.records import (
    arrow_kernels,
    build_kernels,
    kernels,
    key_kernels,
    partition_kernels,
    produce_kernels,
    record_kernels,
    recovery_kernels,
)

BUILT = (
    kernels,
    record_kernels,
    key_kernels,
    arrow_kernels,
    build_kernels,
    partition_kernels,
    recovery_kernels,
    produce_kernels,
    short_kernels,
)
ROOMS = {"penstock.records": penstock.records, "penstock.protocol": penstock.protocol}


def _load_interpreted() -> SimpleNamespace:
    """Runs the .py files under their own names, so that they find each other, and puts the built ones back."""
    loaded: dict[str, ModuleType] = {}
    try:
        for built_module in BUILT:
            full_name = built_module.__name__
            room, _, name = full_name.rpartition(".")
            path = Path(ROOMS[room].__path__[0]) / f"{name}.py"
            spec = importlib.util.spec_from_file_location(full_name, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[full_name] = module
            spec.loader.exec_module(module)
            loaded[name] = module
    finally:
        for built_module in BUILT:
            room, _, name = built_module.__name__.rpartition(".")
            sys.modules[built_module.__name__] = built_module
            setattr(ROOMS[room], name, built_module)
    assert not loaded["kernels"].COMPILED
    return SimpleNamespace(**loaded)


interpreted = _load_interpreted()
built = SimpleNamespace(**{module.__name__.rpartition(".")[2]: module for module in BUILT})
