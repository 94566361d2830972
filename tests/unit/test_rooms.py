"""The rooms of the package and what each may import."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import megakernel

PACKAGE = Path(megakernel.__file__).parent
ROOMS = ("operator", "variants", "record", "device", "run", "report", "cli")
MODULES = sorted(PACKAGE.rglob("*.py"))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module that a file imports, also within functions; ``from a import b`` gives ``a.b``."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def importers(package: str) -> set[str]:
    """The files that import a package, by their path within ours."""
    return {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if any(name.split(".")[0] == package for name in imports(path))
    }


def test_the_package_has_these_rooms_and_no_others() -> None:
    found = {room_of(path) for path in MODULES}
    assert found == {*ROOMS, "__init__.py", "__main__.py", "errors.py", "files.py"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_to_its_left(room: str) -> None:
    allowed = {"errors", "files", "__version__", *ROOMS[: ROOMS.index(room) + 1]}
    if room == "report":
        allowed -= {"device", "run"}  # loading, analysis and plots never import CUDA
    for path in MODULES:
        if room_of(path) == room:
            used = {name.split(".")[1] for name in imports(path) if name.startswith("megakernel.")}
            assert used <= allowed, f"{path.name} imports {used - allowed}"


def test_errors_import_nothing_of_the_package() -> None:
    assert not [name for name in imports(PACKAGE / "errors.py") if name.startswith("megakernel")]


def test_some_packages_have_one_home() -> None:
    assert importers("rich") == {"report/tables.py"}
    assert {path.split("/")[0] for path in importers("typer")} == {"cli"}
    assert {path.split("/")[0] for path in importers("cuda")} == {"device"}
    assert {path.split("/")[0] for path in importers("cffi")} <= {"device"}
    assert {path.split("/")[0] for path in importers("h5py")} == {"record"}
    assert importers("ctypes") == set()


def test_the_sieve_sees_imports_inside_functions(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("def f():\n    from megakernel.run import plan\n    import ctypes\n")
    assert imports(file) == ("megakernel.run.plan", "ctypes")
