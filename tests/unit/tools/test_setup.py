"""Installing without a C compiler, or with one that fails half way, warns and leaves every kernel interpreted."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from setuptools import Distribution, Extension  # type: ignore[import-untyped]

pytestmark = pytest.mark.filterwarnings("ignore:.*setup.py install is deprecated", "ignore:.*Please avoid running")

SETUP = Path(__file__).parents[3] / "setup.py"


def load_setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("penstock_setup", SETUP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(folder: Path, sources: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Builds extensions of these C sources in place; the names of what came out."""
    monkeypatch.chdir(folder)
    (folder / "src").mkdir(exist_ok=True)
    for name, source in sources.items():
        (folder / "src" / f"{name}.c").write_text(source)
    distribution = Distribution(
        {
            "name": "kernels",
            "package_dir": {"": "src"},
            "ext_modules": [Extension(name, [f"src/{name}.c"]) for name in sources],
        }
    )
    command = load_setup().BuildKernels(distribution)
    command.inplace = True
    command.ensure_finalized()
    command.run()
    assert len(command.get_outputs()) == len(list(folder.glob("src/*.so")))
    return sorted(path.name.partition(".")[0] for path in folder.rglob("*.so") if "build" not in path.parts)


def module_source(name: str) -> str:
    return (
        "#include <Python.h>\n"
        f'static struct PyModuleDef d = {{PyModuleDef_HEAD_INIT, "{name}", 0, -1, 0}};\n'
        f"PyMODINIT_FUNC PyInit_{name}(void) {{ return PyModule_Create(&d); }}\n"
    )


def test_every_kernel_is_compiled_or_none_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    good = {"first": module_source("first"), "second": module_source("second")}
    assert build(tmp_path, good, monkeypatch) == ["first", "second"]
    assert "interpreted" not in capfd.readouterr().err
    assert build(tmp_path, good | {"third": "this is no C\n"}, monkeypatch) == [], "what an earlier build left goes too"
    assert "will run interpreted" in capfd.readouterr().err


def test_a_machine_without_a_compiler_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    assert build(tmp_path, {"only": module_source("only")}, monkeypatch) == []
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("penstock:")]
    assert "interpreted, 100 times slower and more" in line


def test_every_kernel_is_in_the_list_and_every_module_of_the_way_exists() -> None:
    root = SETUP.parent / "src" / "penstock"
    found = {str(path.relative_to(root).with_suffix("")) for path in root.glob("*/*kernels.py")}
    module = load_setup()
    assert set(module.KERNELS) == found
    assert [name for name in module.WAY if not (root / f"{name}.py").exists()] == []
