"""A job back to the TOML file that says it: what differs from the defaults, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fedvitals.train.job import SECTIONS, Job

_ESCAPED = {code: f"\\u{code:04x}" for code in (0x7F, *range(0x80, 0xA0))}  # JSON leaves them, TOML or a reader do not


def job_file(job: Job, remark: str = "") -> str:
    """The text of the file; `Job.load` gives an equal job. A remark stands above it."""
    said, plain = job.to_dict(), Job().to_dict()
    lines = [f"# {line}".rstrip() for line in remark.splitlines()]
    lines += [_line("name", job.name), _line("seed", job.seed)]
    for title in SECTIONS:
        differing = {key: value for key, value in said[title].items() if value != plain[title][key]}
        lines += _table(f"[{title}]", differing) if differing else []
    for fault in said["faults"]:
        lines += _table("[[faults]]", fault)
    return "\n".join(lines) + "\n"


def _table(head: str, values: Mapping[str, Any]) -> list[str]:
    return ["", head, *(_line(key, value) for key, value in values.items())]


def _line(key: str, value: object) -> str:
    return f"{key} = {_spelled(value)}"


def _spelled(value: object) -> str:
    """A value as TOML has it: text, numbers and lists are written as in JSON, but for some signs."""
    if isinstance(value, list):
        return f"[{', '.join(map(_spelled, value))}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False).translate(_ESCAPED)
