"""Small rooms with plain names: the size and the labels of modules, functions and tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tree import ROOT, SOURCE, Function, Module, modules

MOST_MODULE_LINES = 350
MOST_TABLE_LINES = 500
TABLES = ("conventions",)  # one place for all names is a rule of its own
MOST_FUNCTION_LINES = 60
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "tools"}
SOURCES = modules()
TESTS = modules(ROOT / "tests")


def _id(module: Module) -> str:
    return str(module.path.relative_to(ROOT))


@pytest.mark.parametrize("module", SOURCES + TESTS, ids=_id)
def test_a_module_is_small_and_says_what_it_is(module: Module) -> None:
    """A docstring, at most 350 lines, and a name that means something."""
    assert ast.get_docstring(module.tree), f"{module.path} has no docstring"
    most = MOST_TABLE_LINES if module.path.stem in TABLES else MOST_MODULE_LINES
    assert module.lines <= most, f"{module.path} has {module.lines} lines: split it by what it does"
    assert module.path.stem not in EMPTY_NAMES, f"{module.path}: name it after what it holds"


@pytest.mark.parametrize("module", SOURCES + TESTS, ids=_id)
def test_functions_are_short(module: Module) -> None:
    """At most 60 lines, decorators and docstring included."""
    long = {one.name: length for one in module.functions() if (length := _length(one)) > MOST_FUNCTION_LINES}
    assert not long, f"{module.path}: {long}"


@pytest.mark.parametrize("module", [one for one in TESTS if one.path.stem.startswith("test_")], ids=_id)
def test_a_test_says_what_it_holds_and_can_fail(module: Module) -> None:
    """A docstring, and something that can fail: an assertion, `raises`, or a function of the same file that asserts."""
    tests = [one for one in module.functions() if one.name.startswith("test_")]
    silent = [one.name for one in tests if not ast.get_docstring(one)]
    sharp = _checking_functions(module)
    toothless = [one.name for one in tests if not _can_fail(one, sharp)]
    assert tests or _inherits_tests(module), f"{module.path} holds no test"
    assert not silent, f"{module.path}: no docstring in {silent}"
    assert not toothless, f"{module.path}: nothing can fail in {toothless}"


def test_test_files_have_names_of_their_own() -> None:
    """Without packages among the tests, two files of one name would hide each other."""
    names = [one.path.name for one in TESTS if one.path.name != "conftest.py"]
    assert sorted(set(names)) == sorted(names)


def test_a_toothless_test_is_found(tmp_path: Path) -> None:
    """A test that asserts nothing is told from one whose assertion lies in a function it calls."""
    path = tmp_path / "sample.py"
    path.write_text("def sure(x):\n    assert x\n\ndef test_a():\n    sure(1)\n\ndef test_b():\n    print(1)\n")
    module = Module(path)
    assert _checking_functions(module) == {"sure", "test_a"}


def test_the_walk_finds_the_tree() -> None:
    """The tests above look at something."""
    assert SOURCE / "vocabulary" / "records.py" in {one.path for one in SOURCES}
    assert len(TESTS) > 10


def _length(function: Function) -> int:
    first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
    return (function.end_lineno or first) - first + 1


def _checking_functions(module: Module) -> set[str]:
    """Names of the file's own functions that assert something, directly or through another."""
    sharp: set[str] = set()
    while more := {one.name for one in module.functions() if one.name not in sharp and _can_fail(one, sharp)}:
        sharp |= more
    return sharp


def _can_fail(function: Function, sharp: set[str]) -> bool:
    return any(_is_check(node, sharp) for node in ast.walk(function))


def _is_check(node: ast.AST, sharp: set[str]) -> bool:
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in ("raises", "warns", "fail") or called in sharp or called.startswith("assert_")


def _inherits_tests(module: Module) -> bool:
    """A contract's subclass has its tests from the contract."""
    bases = [base for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef) for base in node.bases]
    return any("Contract" in ast.unparse(base) for base in bases)
