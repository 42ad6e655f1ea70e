"""The source tree as the architecture tests see it: modules, their imports, their functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "fedvitals"
PACKAGE = "fedvitals"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file, parsed."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @cached_property
    def name(self) -> str:
        """`fedvitals.store.schema`; a package has its own name."""
        parts = list(self.path.relative_to(SOURCE.parent).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    def imports(self, *, for_types: bool) -> set[str]:
        """Full names of all that is imported, wherever in the file; with or without `if TYPE_CHECKING` blocks."""
        skipped = set() if for_types else set(_inside_type_checking(self.tree))
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if node not in skipped:
                found |= set(self._imported(node))
        return found

    def _imported(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = self._base(node)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            yield from (word.value for word in node.args[:1] if _is_text(word))  # type: ignore[attr-defined]  # _is_text

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".") if self.path.stem == "__init__" else self.name.split(".")[:-1]
        kept = package[: len(package) - node.level + 1]
        return ".".join([*kept, node.module] if node.module else kept)

    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def modules(under: Path = SOURCE) -> list[Module]:
    return [Module(path) for path in sorted(under.rglob("*.py")) if "__pycache__" not in path.parts]


def stage(name: str) -> str:
    """The folder a module belongs to: `fedvitals.store.schema` -> `store`; `show.cli` is a stage of its own."""
    parts = name.split(".")[1:]
    if parts[:2] == ["show", "cli"]:
        return "show.cli"
    return parts[0] if parts else ""


def _inside_type_checking(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for child in node.body:
                yield from ast.walk(child)


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
