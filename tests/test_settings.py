"""Settings: one table, five sources, and refusals that name where a wrong value came from."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.errors import SettingsError
from fedvitals.settings import BY_NAME, SETTINGS, Setting, Settings, resolve


def _project(folder: Path, section: str) -> Path:
    (folder / "pyproject.toml").write_text(section, encoding="utf-8")
    return folder


def test_the_table_and_the_class_agree() -> None:
    """Every entry of SETTINGS is a field of Settings with the same default, in the same order."""
    assert [one.name for one in SETTINGS] == [one.name for one in fields(Settings)]
    assert {one.name: one.default for one in SETTINGS} == {one.name: one.default for one in fields(Settings)}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: one.name)
def test_a_default_is_itself_allowed(setting: Setting, tmp_path: Path) -> None:
    """Saying a default out loud changes nothing, as a value and as text."""
    assert resolve({setting.name: setting.default}, environment={}, project=tmp_path) == Settings()
    assert resolve(environment={setting.environment: str(setting.default)}, project=tmp_path) == Settings()


def test_the_first_source_wins(tmp_path: Path) -> None:
    """Argument, flag, environment, pyproject.toml, default: taken away one by one, the next one speaks."""
    project = _project(tmp_path, "[tool.fedvitals]\nmax_mb = 4\n")
    environment = {"FEDVITALS_MAX_MB": "3"}
    assert resolve({"max_mb": 1}, {"max_mb": 2}, environment, project).max_mb == 1
    assert resolve({}, {"max_mb": 2}, environment, project).max_mb == 2
    assert resolve({}, {}, environment, project).max_mb == 3
    assert resolve({}, {}, {}, project).max_mb == 4
    assert resolve({}, {}, {}, _project(tmp_path, "")).max_mb == BY_NAME["max_mb"].default


def test_the_nearest_pyproject_counts(tmp_path: Path) -> None:
    """Settings are found from a folder below the project's."""
    _project(tmp_path, "[tool.fedvitals]\nlevel = 'sealed'\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert resolve(environment={}, project=below).level == "sealed"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"FEDVITALS_MODE": "loud"}, ("environment", "mode", "'loud'", "on, off")),
        ({"FEDVITALS_BUDGET": "2"}, ("environment", "budget", "between 0 and 1")),
        ({"FEDVITALS_BUDGET": "nan"}, ("environment", "budget", "between 0 and 1")),
        ({"FEDVITALS_BUDGET": "cheap"}, ("environment", "budget", "a number")),
        ({"FEDVITALS_MAX_MB": "1.5"}, ("environment", "max_mb", "a whole number")),
        ({"FEDVITALS_SKETCHES": "maybe"}, ("environment", "sketches", "true or false")),
        ({"FEDVITALS_DIR": ""}, ("environment, FEDVITALS_DIR", "names no folder", ".fedvitals")),
        ({"FEDVITALS_DIR": "~nobody-of-this-name/runs"}, ("FEDVITALS_DIR", "'~nobody-of-this-name/runs'", "home")),
    ],
    ids=lambda one: str(one),
)
def test_a_wrong_value_is_refused_with_its_source(
    environment: dict[str, str], words: tuple[str, ...], tmp_path: Path
) -> None:
    """The message says where it was, what it was, and what would be right."""
    with pytest.raises(SettingsError) as refused:
        resolve(environment=environment, project=tmp_path)
    assert all(word in str(refused.value) for word in words)


def test_an_unknown_name_gets_the_nearest(tmp_path: Path) -> None:
    """A slip of the pen is answered with the right word."""
    with pytest.raises(SettingsError, match=r"argument: .*'buget'.*did you mean 'budget'"):
        resolve({"buget": 0.1}, environment={}, project=tmp_path)
    with pytest.raises(SettingsError, match=r"pyproject.toml .*'colour'.*known: "):
        resolve(environment={}, project=_project(tmp_path, "[tool.fedvitals]\ncolour = 1\n"))
    with pytest.raises(SettingsError, match=r"environment, FEDVITALS_MOED: .*'moed'.*did you mean 'mode'"):
        resolve(environment={"FEDVITALS_MOED": "off", "HOME": "/"}, project=_project(tmp_path, ""))
    assert resolve(environment={"FEDVITALS_BENCH_DATA": "/data"}, project=tmp_path) == Settings()


def test_the_file_and_the_variable_are_named(tmp_path: Path) -> None:
    """Which pyproject.toml it was, of all those above, and which variable."""
    project = _project(tmp_path, "[tool.fedvitals]\nbudget = 9\n")
    with pytest.raises(SettingsError, match=re.escape(f"{project / 'pyproject.toml'} [tool.fedvitals]: budget = 9")):
        resolve(environment={}, project=project)
    with pytest.raises(SettingsError, match=r"^environment, FEDVITALS_BUDGET: budget = '9' is not between 0 and 1$"):
        resolve(environment={"FEDVITALS_BUDGET": "9"}, project=_project(tmp_path, ""))


@pytest.mark.parametrize("section", ["[tool.fedvitals", "[tool]\nfedvitals = 3 # tool.fedvitals\n"])
def test_a_broken_pyproject_is_named(section: str, tmp_path: Path) -> None:
    """A file that is not TOML, or whose section is no table, is refused by its path."""
    with pytest.raises(SettingsError, match=r"pyproject\.toml"):
        resolve(environment={}, project=_project(tmp_path, section))


@pytest.mark.parametrize(("text", "value"), [("1", True), ("YES", True), ("on", True), ("0", False), ("off", False)])
def test_truth_has_several_words(text: str, value: bool, tmp_path: Path) -> None:
    """In the environment, booleans may be said as people say them."""
    assert resolve(environment={"FEDVITALS_SKETCHES": text}, project=tmp_path).sketches is value


def test_paths_are_text(tmp_path: Path) -> None:
    """A folder may be given as a Path."""
    assert resolve({"dir": tmp_path / "runs"}, environment={}, project=tmp_path).dir == str(tmp_path / "runs")


@given(name=st.sampled_from(sorted(BY_NAME)), value=st.one_of(st.text(), st.integers(), st.floats(), st.booleans()))
def test_any_value_is_taken_whole_or_refused(name: str, value: object) -> None:
    """Nothing but a SettingsError comes out, and what is taken has the type of its default."""
    try:
        taken = getattr(resolve({name: value}, environment={}, project=Path("/nonexistent")), name)
    except SettingsError:
        return
    assert type(taken) is type(BY_NAME[name].default)


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For whoever asks where the runs are: the store, and pictures beside it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(environment={"FEDVITALS_DIR": "~/runs"}).dir == str(tmp_path / "runs")
    assert resolve(environment={"FEDVITALS_DIR": "runs/~"}).dir == "runs/~"
