"""The rooms of the house stand in layers: an import points down, never up, and never in a circle.

All imports count, also those inside functions and under TYPE_CHECKING; only for circles it is
those that run when a file is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src"

# The public names.
PUBLIC = "tfrnet"
# From the bottom up: each may import itself and those before it. A new room takes its place here.
LAYERS = (
    "tfrnet.core",
    "tfrnet.data",
    "tfrnet.models",
    "tfrnet.masking",
    "tfrnet.unlearner",
    "tfrnet.training",
    "tfrnet.methods",
    "tfrnet.method",
    "tfrnet.audit",
    "tfrnet.state",
    "tfrnet.distributed",
    "tfrnet.method_state",
    "tfrnet.export",
    "tfrnet.session",
    "tfrnet.pretrained",
    PUBLIC,
    "tfrnet.evaluation",
    "tfrnet.serve",
    "tfrnet.demo",
    "tfrnet.cli",
    "tfrnet.__main__",
    "tfrnet_bench",
)
# The store knows no method, and no method knows the disk.
STORE = "tfrnet.state"
METHODS = "tfrnet.methods"
METHOD_ROOMS = ("tfrnet.unlearner", "tfrnet.training", METHODS, "tfrnet.method")


class Import(NamedTuple):
    source: str
    target: str
    at_once: bool  # when the file is imported, not later or for the type checker only

    def __str__(self) -> str:
        return f"{self.source} imports {self.target}"


# Reading a tree of packages


def modules_of(root: Path) -> dict[str, Path]:
    found = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(root: Path) -> list[Import]:
    """Return every import of one module of the tree by another."""
    modules = modules_of(root)
    return sorted(
        {
            Import(name, target, at_once)
            for name, path in modules.items()
            for wanted, at_once in statements(ast.parse(path.read_text()), True)
            for target in targets(wanted, name, path.name == "__init__.py", modules)
            if target != name
        }
    )


def statements(node: ast.AST, at_once: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, at_once
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for part in child.body:
                yield from statements(ast.Module([part], []), False)
            for part in child.orelse:
                yield from statements(ast.Module([part], []), at_once)
        else:
            later = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from statements(child, at_once and not later)


def targets(
    statement: ast.Import | ast.ImportFrom, module: str, is_package: bool, known: dict[str, Path]
) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        names = [alias.name for alias in statement.names]
    else:
        base = module.split(".")
        if statement.level:
            base = base[: len(base) - statement.level + is_package]
        start = ".".join([*(base if statement.level else ()), *filter(None, [statement.module])])
        inner = [f"{start}.{alias.name}" for alias in statement.names]
        names = [name if name in known else start for name in inner]
    return (name for name in names if name in known)


# The rules


def room_of(module: str) -> str | None:
    """Return the room that a module is or lies in; among the public names lies nothing."""
    fitting = [
        room
        for room in LAYERS
        if module == room or (room != PUBLIC and module.startswith(f"{room}."))
    ]
    return max(fitting, key=len, default=None)


def pointing_up(imports: list[Import]) -> list[str]:
    def height(module: str) -> int:
        room = room_of(module)
        assert room is not None, f"{module} has no place among the layers"
        return LAYERS.index(room)

    return [str(each) for each in imports if height(each.target) > height(each.source)]


def across_methods(imports: list[Import]) -> list[str]:
    def method_of(module: str) -> str:
        inside = module.removeprefix(f"{METHODS}.")
        return inside.partition(".")[0] if inside != module else ""

    return [
        str(each)
        for each in imports
        if method_of(each.source) and method_of(each.target)
        if method_of(each.source) != method_of(each.target)
    ]


def between_store_and_methods(imports: list[Import]) -> list[str]:
    sides = [(room_of(each.source), room_of(each.target), each) for each in imports]
    return [
        str(each)
        for source, target, each in sides
        if (source == STORE and target in METHOD_ROOMS)
        or (source in METHOD_ROOMS and target == STORE)
    ]


def circle(imports: list[Import]) -> list[str]:
    """Return the files of a circle of imports that run at once, if there is one."""
    graph: dict[str, set[str]] = {}
    for source, target, at_once in imports:
        if at_once:
            # Importing a module imports the packages that it is in; its importer's own are there.
            parts = target.split(".")
            packages = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
            graph.setdefault(source, set()).update(
                package for package in packages if not f"{source}.".startswith(f"{package}.")
            )
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


# The house itself


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return imports_of(SOURCE)


def test_every_import_points_down(imports: list[Import]) -> None:
    assert pointing_up(imports) == []


def test_every_room_that_is_named_is_there() -> None:
    assert set(LAYERS) <= set(modules_of(SOURCE))


def test_no_method_imports_another(imports: list[Import]) -> None:
    assert across_methods(imports) == []


def test_the_store_knows_no_method_and_no_method_knows_the_store(imports: list[Import]) -> None:
    assert between_store_and_methods(imports) == []


def test_no_circle_of_files(imports: list[Import]) -> None:
    assert circle(imports) == []


# The rules on a made-up house


def build(root: Path, **files: str) -> list[Import]:
    """Write files, whose names have __ for /, and return what they import."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.parents:
            if folder != root and folder.is_relative_to(root):
                (folder / "__init__.py").touch()
        path.write_text(text)
    return imports_of(root)


@pytest.mark.parametrize(
    "text",
    [
        "from tfrnet.state.store import Store",
        "import tfrnet.state.store",
        "from tfrnet.state import store",
        "from ..state.store import Store",
        "def f():\n    from tfrnet.state.store import Store",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tfrnet.state.store",
        "try:\n    import tfrnet.state.store\nexcept ImportError:\n    pass",
    ],
)
def test_an_import_that_points_up_is_found(tmp_path: Path, text: str) -> None:
    imports = build(tmp_path, tfrnet__core__files=text, tfrnet__state__store="")
    assert pointing_up(imports) == ["tfrnet.core.files imports tfrnet.state.store"]
    downwards = build(
        tmp_path, tfrnet__core__files="", tfrnet__state__store="from tfrnet.core import files"
    )
    assert pointing_up(downwards) == []


def test_a_room_without_a_place_is_found(tmp_path: Path) -> None:
    imports = build(tmp_path, tfrnet__attic__box="import tfrnet.core.files", tfrnet__core__files="")
    with pytest.raises(AssertionError, match=r"tfrnet\.attic\.box has no place"):
        pointing_up(imports)


def test_methods_that_know_each_other_or_the_store_are_found(tmp_path: Path) -> None:
    imports = build(
        tmp_path,
        tfrnet__methods__ga="",
        tfrnet__methods__tfr__model="from tfrnet.methods.tfr import state",
        tfrnet__methods__tfr__state="from tfrnet.state import store",
        tfrnet__methods__graddiff="def f():\n    from tfrnet.methods.ga import A",
        tfrnet__state__store="import tfrnet.methods.ga",
    )
    assert across_methods(imports) == ["tfrnet.methods.graddiff imports tfrnet.methods.ga"]
    assert between_store_and_methods(imports) == [
        "tfrnet.methods.tfr.state imports tfrnet.state.store",
        "tfrnet.state.store imports tfrnet.methods.ga",
    ]


def test_a_circle_is_found_but_not_one_that_closes_later(tmp_path: Path) -> None:
    names = {"a": "tfrnet__core__a", "b": "tfrnet__core__b", "c": "tfrnet__core__c"}
    chain = {names["a"]: "import tfrnet.core.b", names["b"]: "from tfrnet.core import c"}
    closed = build(tmp_path, **chain, **{names["c"]: "from tfrnet.core.a import x"})
    assert set(circle(closed)) == {"tfrnet.core.a", "tfrnet.core.b", "tfrnet.core.c"}
    later = "def f():\n    from tfrnet.core.a import x"
    assert circle(build(tmp_path, **chain, **{names["c"]: later})) == []
