"""The pinned versions: one for each dependency, inside our own ranges and those of what must live beside us."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What flwr 1.41.0 asks of packages that we also ask for, from its own metadata.
FLOWER = (
    "numpy>=1.26.0,<3.0.0",
    "protobuf>=5.28.0,<7.0.0",
    "typer>=0.13.0,<0.21.0",
    "pathspec>=1.0.4,<2.0.0",
    "rich>=14.0.0,<15.0.0",
    "click>=8.0.0,<9.0.0",
    "packaging>=24.0,<26.0",
    "uvicorn>=0.49.0,<0.50.0",
    "starlette>=1.3.1,<1.4.0",
)


def _pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line.strip() and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def _wishes() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    return [Requirement(line) for line in [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]]


@pytest.mark.parametrize("wish", _wishes(), ids=str)
def test_each_wish_is_pinned_inside_its_range(wish: Requirement) -> None:
    """pyproject.toml keeps ranges wide; constraints.txt names one version inside each."""
    assert wish.specifier.contains(_pins()[canonicalize_name(wish.name)])


@pytest.mark.parametrize("line", FLOWER)
def test_the_pins_leave_room_for_flower(line: str) -> None:
    """flwr 1.41.0 can be installed beside us under the same constraints."""
    wish = Requirement(line)
    assert wish.specifier.contains(_pins()[canonicalize_name(wish.name)])


def test_torch_comes_first_and_exactly() -> None:
    """`script/setup` reads the first pin: a looser wish would bring gigabytes of CUDA."""
    assert next(iter(_pins())) == "torch"
    assert re.search(r"^torch==\d+\.\d+\.\d+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)


def test_everything_a_set_up_installs_is_pinned() -> None:
    """The base install and the tools, with all that they need in turn."""
    pins = _pins()
    needed = set(_closure(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]))
    assert "sympy" in needed
    assert not needed - set(pins)


@pytest.mark.parametrize("name", ["demo", "test", "lint", "bench", "setup"])
def test_the_scripts_are_sound_shell(name: str) -> None:
    """Each can be executed and parsed."""
    path = ROOT / "script" / name
    assert path.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", str(path)], capture_output=True, check=False).returncode == 0


def _closure(lines: list[str]) -> Iterator[str]:
    """Names of all packages that these lines bring in here, by the metadata of what is installed."""
    waiting = [Requirement(line) for line in lines]
    seen: set[str] = set()
    while waiting:
        wish = waiting.pop()
        name = canonicalize_name(wish.name)
        if name in seen or name.startswith(("nvidia-", "cuda-")) or name == "triton":  # torch pins those itself
            continue
        seen.add(name)
        yield name
        try:
            further = [Requirement(line) for line in requires(name) or []]
        except PackageNotFoundError:  # an extra tool that this environment does without
            continue
        waiting += [one for one in further if one.marker is None or one.marker.evaluate({"extra": ""})]
