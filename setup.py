"""Builds the kernels: plain Python files that Cython compiles. Without a compiler the install still works, slowly."""

import os

from setuptools import Extension, setup

KERNELS = [
    "src/penstock/records/kernels.py",
    "src/penstock/records/record_kernels.py",
    "src/penstock/records/key_kernels.py",
    "src/penstock/records/arrow_kernels.py",
    "src/penstock/records/build_kernels.py",
    "src/penstock/records/recovery_kernels.py",
]


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
            optional=True,  # no compiler: warn, install, run interpreted
        )
        for path in KERNELS
    ]
    return list(cythonize(modules, language_level=3, build_dir="build/cython"))


setup(ext_modules=extensions())
