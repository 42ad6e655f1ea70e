"""Imports go one way: a stage knows only the stages before it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tree import PACKAGE, Module, modules, stage

GROUND = {"vocabulary", "conventions", "settings", "errors", "randomness", "printable"}  # everybody's
ANYTHING = {
    "train",
    "store",
    "diagnose",
    "profile",
    "capture",
    "codecs",
    "export",
    "faults",
    "show",
    "show.cli",
    "bench",
    "run",
    "testing",
}
MAY_IMPORT: dict[str, set[str]] = {
    **dict.fromkeys(GROUND, GROUND),
    "store": set(),
    "codecs": set(),
    "faults": set(),
    "capture": {"store"},
    "diagnose": {"store"},
    # Who is slow is the doctor's judgement, and what it costs the profile's; what a codec makes of an update, its own.
    "profile": {"store", "diagnose", "codecs"},
    "run": {"capture", "diagnose", "profile", "show", "store"},  # the page is made by what makes it for the command
    "train": {"capture", "codecs", "faults", "run"},
    "export": {"store", "diagnose", "profile"},
    "show": {"store", "capture", "codecs", "diagnose", "export", "faults", "profile"},
    "show.cli": ANYTHING,
    "bench": ANYTHING,
    "testing": {"capture", "codecs", "diagnose", "store", "train"},
    "": {"capture", "codecs", "diagnose", "faults", "run", "store", "testing", "train"},
    "__main__": {"show.cli"},
}
EXCEPTIONS = {
    "fedvitals.show.reference": ANYTHING,  # a command of ours, run from the repository: it documents jobs and faults
}
TORCH_STAGES = {"train", "codecs", "faults", "bench", "testing"}
TORCH_MODULES = ("fedvitals.capture.tensors", "fedvitals.capture.probe", "fedvitals.capture.allocations")
MODULES = modules()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_a_module_imports_only_earlier_stages(module: Module) -> None:
    """Anywhere in the file, inside functions and for types too."""
    own = stage(module.name)
    assert own in MAY_IMPORT, f"{module.path}: the folder {own!r} has no entry in MAY_IMPORT"
    allowed = {own} | GROUND | MAY_IMPORT[own] | EXCEPTIONS.get(module.name, set())
    reached = {stage(name) for name in module.imports(for_types=True) if name.split(".")[0] == PACKAGE}
    reached -= {""} if module.name != PACKAGE else set()  # `import fedvitals` itself knows nothing
    assert reached <= allowed | {""}, f"{module.name} imports {sorted(reached - allowed)}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_torch_is_imported_only_where_tensors_are(module: Module) -> None:
    """What only reads, shows or decides must start without torch."""
    torch = {name for name in module.imports(for_types=False) if name.split(".")[0] == "torch"}
    allowed = stage(module.name) in TORCH_STAGES or module.name.startswith(TORCH_MODULES)
    assert allowed or not torch, f"{module.name} imports {sorted(torch)}"


def test_the_rules_see_what_they_should() -> None:
    """The walk finds imports inside functions and behind TYPE_CHECKING, or the tests above would pass on anything."""
    by_name = {module.name: module for module in MODULES}
    run_command = by_name["fedvitals.show.cli.run"]
    assert "fedvitals.train.engine.train" in run_command.imports(for_types=True)
    assert any(name.startswith("torch") for name in by_name["fedvitals.faults.work"].imports(for_types=False))
    assert stage("fedvitals.show.cli.run") == "show.cli"
    assert len(MODULES) > 50


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import fedvitals"),
        ("-m", "fedvitals", "--help"),
        ("-m", "fedvitals", "--version"),
        ("-m", "fedvitals", "run", "--help"),
        ("-m", "fedvitals", "show", "--help"),
        ("-m", "fedvitals", "doctor", "--help"),
        ("-m", "fedvitals", "explain", "--help"),
        ("-m", "fedvitals", "report", "--help"),
        ("-m", "fedvitals", "export", "--help"),
        ("-m", "fedvitals", "completion", "bash"),
        ("-m", "fedvitals", "bench"),
    ],
    ids=" ".join,
)
def test_starting_is_light(arguments: tuple[str, ...]) -> None:
    """Neither torch nor numpy is loaded by what only starts or helps; `--help` does without rich, too."""
    loaded = _loaded(arguments)
    heavy = {"torch", "numpy", "sklearn", "plotly", "psutil"} | (set() if "bench" in arguments else {"rich"})
    assert "fedvitals" in loaded
    assert not heavy & loaded


def _loaded(arguments: tuple[str, ...]) -> set[str]:
    """Top-level modules that this command line brings in, as told by the interpreter itself."""
    command = (sys.executable, "-X", "importtime", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = (line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:"))
    return {name.split(".")[0] for name in names}
