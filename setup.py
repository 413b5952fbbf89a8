"""Builds the kernels: plain Python files that Cython compiles. All of them or none: they call each other in C.

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
    "src/penstock/records/kernels.py",
    "src/penstock/records/record_kernels.py",
    "src/penstock/records/key_kernels.py",
    "src/penstock/records/arrow_kernels.py",
    "src/penstock/records/build_kernels.py",
    "src/penstock/records/recovery_kernels.py",
]


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

    modules = [
        Extension(
            path.removeprefix("src/").removesuffix(".py").replace("/", "."),
            [path],
            include_dirs=[os.path.dirname(path)],
            depends=["src/penstock/records/crc32c.h"],
            extra_compile_args=["-O3"],
        )
        for path in KERNELS
    ]
    return list(cythonize(modules, language_level=3, build_dir="build/cython"))


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildKernels})
