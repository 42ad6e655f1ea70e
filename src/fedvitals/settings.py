"""Every setting once: its name, type, default and meaning.

A value comes from, first found wins: the argument in code, the command line's flag, the environment, `[tool.fedvitals]`
of the nearest pyproject.toml, the default. The reference page is generated from `SETTINGS`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedvitals.errors import SettingsError, nearest

Value = str | int | float | bool

PREFIX = "FEDVITALS_"
BENCH = "FEDVITALS_BENCH_"  # where benches find what they compare with: no settings


@dataclass(frozen=True, slots=True)
class Setting:
    """One entry of the table."""

    name: str
    default: Value
    meaning: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    folder: bool = False  # the path of one; `~` is the home

    @property
    def environment(self) -> str:
        return PREFIX + self.name.upper()


SETTINGS: tuple[Setting, ...] = (
    Setting("mode", "on", "`off` turns every call of the recorder into a no-op.", choices=("on", "off")),
    Setting("dir", ".fedvitals", "The folder that holds the runs.", folder=True),
    Setting("store", "", "For another store than the folder, in a later version. Empty: the folder."),
    Setting(
        "level",
        "open",
        "How much the server sees: `open` (each update), `summary` (statistics), `sealed` (sums).",
        choices=("open", "summary", "sealed"),
    ),
    Setting("budget", 0.02, "The share of the training's time that recording may cost.", low=0.0, high=1.0),
    Setting(
        "steps",
        "governed",
        "Gradients to look at: `governed` by the budget (at least one step a participation), `every` step's norms, "
        "`full` statistics at every step, or `off`.",
        choices=("governed", "every", "full", "off"),
    ),
    Setting("sketches", True, "Keep sketches of updates. They are sensitive: they tell how alike clients are."),
    Setting("keep_updates", False, "Keep every update whole, as a blob. Needs room; `profile --codec` needs it."),
    Setting("keep_models", True, "Keep the global model of each round as a blob, within `max_mb`."),
    Setting(
        "memory",
        "exact",
        "Memory of phases, clients and tensors. `exact` sets the kernel's mark of the peak back for each, so that "
        "others who read `ru_maxrss` in this process see the peak since then; `sampled` leaves it alone.",
        choices=("exact", "sampled", "off"),
    ),
    Setting("resources_every_s", 1.0, "Seconds between samples of memory and CPU; 0 takes none.", low=0.0, high=3600.0),
    Setting(
        "log_level",
        "INFO",
        "The least level of log records that are kept.",
        choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    ),
    Setting(
        "log_format",
        "none",
        "Print log records too: `rich`, `json` lines, or `none`.",
        choices=("rich", "json", "none"),
    ),
    Setting(
        "max_mb",
        4096,
        "The size of a run on disk, in MB, beyond which details are no longer kept.",
        low=1,
        high=10_000_000,
    ),
    Setting(
        "queue_mb",
        64,
        "Memory for records that wait to be written, in MB; what does not fit is dropped and counted.",
        low=1,
        high=65_536,
    ),
    Setting("close_timeout_s", 10.0, "How long the close of a run may wait for the disk.", low=0.0, high=3600.0),
)
BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one run, resolved. One field an entry of SETTINGS; a test holds the two together."""

    mode: str = "on"
    dir: str = ".fedvitals"
    store: str = ""
    level: str = "open"
    budget: float = 0.02
    steps: str = "governed"
    sketches: bool = True
    keep_updates: bool = False
    keep_models: bool = True
    memory: str = "exact"
    resources_every_s: float = 1.0
    log_level: str = "INFO"
    log_format: str = "none"
    max_mb: int = 4096
    queue_mb: int = 64
    close_timeout_s: float = 10.0


def resolve(
    arguments: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    project: Path | None = None,
) -> Settings:
    """The settings in force; anything unknown or impossible is refused, naming where it came from."""
    env = os.environ if environment is None else environment
    values: dict[str, Value] = {}
    for source, given in (
        ("argument", arguments or {}),
        ("flag", flags or {}),
        ("environment, FEDVITALS_{}", _from_environment(env)),
        _from_pyproject(project or Path.cwd()),
    ):
        for name, value in given.items():
            checked = _checked(name, value, source.replace("{}", name.upper()))
            values.setdefault(name, checked)
    return Settings(**{f.name: values.get(f.name, BY_NAME[f.name].default) for f in fields(Settings)})  # type: ignore[arg-type]  # _checked gave each its field's type


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Whatever bears our prefix is a setting, or a slip of the pen that must not go unheard."""
    ours = {key: value for key, value in environment.items() if key.startswith(PREFIX)}
    return {key.removeprefix(PREFIX).lower(): value for key, value in ours.items() if not key.startswith(BENCH)}


def _from_pyproject(start: Path) -> tuple[str, dict[str, Any]]:
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            return f"{path} [tool.fedvitals]", _read_section(path)
    return "", {}


def _read_section(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from error
    if "tool.fedvitals" not in text:  # the common case, without a TOML parser
        return {}
    import tomllib

    try:
        section = tomllib.loads(text).get("tool", {}).get("fedvitals", {})
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: [tool.fedvitals] must be a table")
    return section


def _checked(name: str, value: Any, source: str) -> Value:
    setting = BY_NAME.get(name)
    if setting is None:
        raise SettingsError(f"{source}: there is no setting {name!r}{nearest(name, list(BY_NAME))}")
    parsed = _parsed(setting, value, source)
    if setting.choices and parsed not in setting.choices:
        raise SettingsError(f"{source}: {name} = {value!r} is not one of {', '.join(setting.choices)}")
    if setting.low is not None and setting.high is not None and not setting.low <= float(parsed) <= setting.high:
        raise SettingsError(f"{source}: {name} = {value!r} is not between {setting.low:g} and {setting.high:g}")
    return _folder(str(parsed), f"{source}: {name} = {value!r}") if setting.folder else parsed


def _folder(path: str, said: str) -> str:
    if not path or "\0" in path:
        raise SettingsError(f"{said} names no folder; right is a path, such as .fedvitals")
    try:
        return os.fspath(Path(path).expanduser()) if path.startswith("~") else path
    except RuntimeError as error:
        raise SettingsError(f"{said}: nobody's home is found under that name; spell the path out") from error


def _parsed(setting: Setting, value: Any, source: str) -> Value:
    wanted = type(setting.default)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str) and wanted is not str:
        value = _from_text(wanted, value)
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise SettingsError(f"{source}: {setting.name} = {value!r} should be {_described(wanted)}")
    return value


def _from_text(wanted: type, text: str) -> Any:
    if wanted is bool:
        return {
            "1": True,
            "true": True,
            "yes": True,
            "on": True,
            "0": False,
            "false": False,
            "no": False,
            "off": False,
        }.get(text.lower(), text)
    try:
        return wanted(text)
    except ValueError:
        return text


def _described(wanted: type) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[wanted]
