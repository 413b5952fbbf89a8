"""The kernels twice: as the build made them, and from the same files by the interpreter."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import penstock.records
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

NAMES = (
    "kernels",
    "record_kernels",
    "key_kernels",
    "arrow_kernels",
    "build_kernels",
    "partition_kernels",
    "recovery_kernels",
    "produce_kernels",
)
DIRECTORY = Path(penstock.records.__file__).parent


def _load_interpreted() -> SimpleNamespace:
    """Runs the .py files under their own names, so that they find each other, and puts the built ones back."""
    loaded: dict[str, ModuleType] = {}
    built = {name: sys.modules[f"penstock.records.{name}"] for name in NAMES}
    try:
        for name in NAMES:
            full_name = f"penstock.records.{name}"
            spec = importlib.util.spec_from_file_location(full_name, DIRECTORY / f"{name}.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[full_name] = module
            spec.loader.exec_module(module)
            loaded[name] = module
    finally:
        for name, module in built.items():
            sys.modules[f"penstock.records.{name}"] = module
            setattr(penstock.records, name, module)
    assert not loaded["kernels"].COMPILED
    return SimpleNamespace(**loaded)


interpreted = _load_interpreted()
built = SimpleNamespace(
    kernels=kernels,
    record_kernels=record_kernels,
    key_kernels=key_kernels,
    arrow_kernels=arrow_kernels,
    build_kernels=build_kernels,
    partition_kernels=partition_kernels,
    recovery_kernels=recovery_kernels,
    produce_kernels=produce_kernels,
)
