"""Builds the compiled modules: plain Python files that Cython compiles. All of them or none: kernels call each other in C.

Kernels say their C types in annotations. The modules of a request's way are compiled as they stand, untyped: what that
saves is the interpreter between their calls (docs/decisions/0004-the-way-of-a-request-is-compiled.md).
Without a C compiler the install warns and works; the kernels then run interpreted, slowly.
"""

import contextlib
import glob
import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

KERNELS = [
    "base/memory_kernels",
    "protocol/short_kernels",
    "records/kernels",
    "records/record_kernels",
    "records/key_kernels",
    "records/arrow_kernels",
    "records/build_kernels",
    "records/partition_kernels",
    "records/produce_kernels",
    "records/recovery_kernels",
]
WAY = [
    "base/clock",
    "base/files",
    "base/metrics",
    "drivers/appends",
    "drivers/delayed",
    "drivers/followers",
    "handlers/api",
    "handlers/authoriser",
    "handlers/fetch",
    "handlers/fetch_answers",
    "handlers/follower_fetch",
    "handlers/missing",
    "handlers/produce",
    "handlers/produce_short",
    "peers/channels",
    "peers/link",
    "peers/replica_fetch",
    "protocol/fetch",
    "protocol/headers",
    "protocol/primitives",
    "protocol/produce",
    "purgatory/purgatory",
    "purgatory/timing_wheel",
    "records/batch",
    "records/codec_frames",
    "records/payload",
    "replication/append",
    "replication/fetch_sessions",
    "replication/fetcher",
    "replication/isr",
    "replication/partition",
    "replication/partitions",
    "replication/read",
    "replication/wait_for_acks",
    "replication/wait_for_bytes",
    "replication/wait_for_partitions",
    "server/connection",
    "server/dispatch",
    "server/framing",
    "server/request_metrics",
    "server/turn",
    "storage/append",
    "storage/directory_health",
    "storage/index_file",
    "storage/leader_epochs",
    "storage/log",
    "storage/log_offsets",
    "storage/offset_index",
    "storage/partition_log",
    "storage/producer_state",
    "storage/segment",
    "storage/short_append",
    "storage/time_index",
]


def extension(name: str, *compile_arguments: str) -> Extension:
    path = f"src/penstock/{name}.py"
    return Extension(
        f"penstock.{name.replace('/', '.')}",
        [path],
        include_dirs=[os.path.dirname(path)],
        depends=["src/penstock/records/crc32c.h", "setup.py"],  # its flags too
        extra_compile_args=[*compile_arguments],
    )


class BuildKernels(build_ext):
    """Where one kernel cannot be compiled, none is: what was built before the failure goes, here and in the source."""

    def run(self) -> None:
        try:
            super().run()
        except (BaseError, CCompilerError, OSError) as error:
            for extension in self.extensions:
                stem = extension.name.replace(".", "/")
                for built in (self.get_ext_fullpath(extension.name), *glob.glob(f"src/{stem}.*.so")):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(built)
            self.extensions = []
            print(
                f"penstock: the kernels could not be compiled and will run interpreted, 100 times slower and more: {error}",
                file=sys.stderr,
            )


def extensions() -> list[Extension]:
    if os.environ.get("PENSTOCK_INTERPRETED") == "1":
        return []
    from Cython.Build import cythonize

    options = {"language_level": 3, "build_dir": "build/cython", "nthreads": os.cpu_count() or 1}
    kernels = cythonize([extension(name, "-O3") for name in KERNELS], **options)
    # Optimised for size (`-Os`) it calls functions for every reference it gives back: a third more time from end to end (decision 4).
    untyped = {"annotation_typing": False}
    way = cythonize([extension(name, "-O2", "-g0") for name in WAY], compiler_directives=untyped, **options)
    return [*kernels, *way]


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildKernels})
