"""Builds the compiled modules: plain Python files that Cython compiles. Without a compiler the install still works, slowly.

Kernels say their C types in annotations. The modules of a request's way are compiled as they stand, untyped: what that
saves is the interpreter between their calls (docs/decisions/0004-the-way-of-a-request-is-compiled.md).
"""

import os

from setuptools import Extension, setup

KERNELS = [
    "records/kernels",
    "records/record_kernels",
    "records/key_kernels",
    "records/arrow_kernels",
    "records/build_kernels",
]
WAY = [
    "base/clock",
    "base/files",
    "drivers/appends",
    "drivers/delayed",
    "handlers/api",
    "handlers/fetch",
    "handlers/missing",
    "handlers/produce",
    "protocol/fetch",
    "protocol/headers",
    "protocol/primitives",
    "protocol/produce",
    "purgatory/purgatory",
    "purgatory/timing_wheel",
    "records/batch",
    "records/payload",
    "replication/append",
    "replication/fetch_sessions",
    "replication/partition",
    "replication/partitions",
    "replication/read",
    "replication/wait_for_acks",
    "replication/wait_for_bytes",
    "server/connection",
    "server/dispatch",
    "server/framing",
    "storage/append",
    "storage/index_file",
    "storage/leader_epochs",
    "storage/log",
    "storage/offset_index",
    "storage/partition_log",
    "storage/producer_state",
    "storage/segment",
    "storage/time_index",
]


def extension(name: str, *compile_arguments: str) -> Extension:
    path = f"src/penstock/{name}.py"
    return Extension(
        f"penstock.{name.replace('/', '.')}",
        [path],
        include_dirs=[os.path.dirname(path)],
        depends=["src/penstock/records/crc32c.h"],
        extra_compile_args=[*compile_arguments],
        optional=True,  # no compiler: warn, install, run interpreted
    )


def extensions() -> list[Extension]:
    if os.environ.get("PENSTOCK_INTERPRETED") == "1":
        return []
    from Cython.Build import cythonize

    options = {"language_level": 3, "build_dir": "build/cython", "nthreads": os.cpu_count() or 1}
    kernels = cythonize([extension(name, "-O3") for name in KERNELS], **options)
    # Untyped code gains nothing from a better optimiser, which would take four times as long.
    untyped = {"annotation_typing": False}
    way = cythonize([extension(name, "-O1", "-g0") for name in WAY], compiler_directives=untyped, **options)
    return [*kernels, *way]


setup(ext_modules=extensions())
