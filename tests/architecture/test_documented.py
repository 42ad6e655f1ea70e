"""Nothing public goes undocumented, and what the documentation says still holds."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tree import ROOT

import fedvitals
from fedvitals.faults.spec import FaultSpec
from fedvitals.settings import SETTINGS
from fedvitals.show import reference
from fedvitals.show.cli.command import NAMES, load, parser_of
from fedvitals.train.job import SECTIONS, Job

DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
HOW_TO = [path for path in DOCS if path.parent.name == "how-to"]
PAGES = [path for path in DOCS if path.parent.name != "reference"]


def _id(value: object) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else ""


def _blocks(language: str, pages: list[Path] = PAGES) -> list[tuple[Path, str]]:
    """The fenced blocks of one language, with the page that each stands on."""
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.S | re.M)
    return [(path, block) for path in pages for block in fence.findall(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_a_reference_page_is_fresh(name: str) -> None:
    """It says what the code says. When it does not: python -m fedvitals.show.reference"""
    assert name not in reference.stale()


def test_a_stale_page_would_be_noticed(tmp_path: Path) -> None:
    """`--check` exits 1 for a missing page; writing makes it 0; a changed page is 1 again."""
    pages = ["--to", str(tmp_path)]
    assert reference.main([*pages, "--check"]) == 1
    assert reference.main(pages) == 0
    assert reference.main([*pages, "--check"]) == 0
    (tmp_path / "job.md").write_text("something else", encoding="utf-8")
    assert reference.main([*pages, "--check"]) == 1


@pytest.mark.parametrize("name", fedvitals.__all__)
def test_a_public_name_says_what_it_is(name: str) -> None:
    """It can be imported, has a docstring of its own, and stands in the reference."""
    value = getattr(fedvitals, name)
    assert value.__doc__
    assert "Enum where members" not in (inspect.getdoc(value) or "")
    assert f"`fedvitals.{name}`" in (ROOT / "docs" / "reference" / "names.md").read_text(encoding="utf-8")


def test_a_name_that_is_not_there_is_refused() -> None:
    """As any module would, and `dir` shows what there is."""
    with pytest.raises(AttributeError, match="no attribute 'strat'"):
        getattr(fedvitals, "strat")  # noqa: B009  # the name must not be checked by the type checker
    assert {"start", "Job", "__version__"} <= set(dir(fedvitals))


def test_every_setting_command_and_key_is_in_the_reference() -> None:
    """By name, as a reader would search for it."""
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
    for setting in SETTINGS:
        assert f"`{setting.name}` | `{setting.environment}`" in pages
    for name in NAMES:
        assert f"## fedvitals {name}" in pages
    assert set(reference.FAULT_KEYS) == set(FaultSpec.__dataclass_fields__)
    assert set(reference.TOP_KEYS) | set(SECTIONS) | {"faults"} == set(Job.__dataclass_fields__)


@pytest.mark.parametrize("path", DOCS, ids=_id)
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link of a page is a file."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    missing = [link for link in links if not (path.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize(("path", "block"), _blocks("toml"), ids=_id)
def test_jobs_in_the_documentation_are_jobs(path: Path, block: str) -> None:
    """Each TOML block is a job that this version takes."""
    job = Job.from_dict(tomllib.loads(block), source=str(path))
    assert Job.from_dict(job.to_dict()) == job


@pytest.mark.parametrize(("path", "block"), _blocks("sh"), ids=_id)
def test_commands_in_the_documentation_are_commands(path: Path, block: str) -> None:
    """Each line that begins with fedvitals is parsed by that command; each script is there."""
    for line in block.splitlines():
        words = line.split("#")[0].split("|")[0].split()
        if words[0] == "fedvitals":
            parser_of(load(words[1])).parse_args(words[2:])
        elif words[0].startswith("./"):
            assert (ROOT / words[0]).is_file()
        else:
            assert words[0] in ("source", "pip", "PYTHON=/path/to/python3.12")


@pytest.mark.parametrize(("path", "block"), _blocks("python", HOW_TO), ids=_id)
def test_scripts_in_the_documentation_run(path: Path, block: str, tmp_path: Path) -> None:
    """Each Python block of a how-to is a whole script, and leaves a finished run."""
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [one.status for one in fedvitals.open_store(fedvitals.Settings(dir=str(tmp_path / "runs"))).runs()] == [
        fedvitals.Status.FINISHED
    ]
