"""The codec bench: races that were run, a line each, so that a long bench goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedvitals.bench import kept
from fedvitals.bench.codecs.cases import Problem, Way
from fedvitals.bench.codecs.racing import Race

USUAL = Path(".bench") / "codecs.jsonl"


class Results:
    """A file of races. A race is another one when anything of its job or its way of sending is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._races = dict(kept.read(path, _race))

    def find(self, problem: Problem, seed: int, way: Way) -> Race | None:
        return self._races.get(_key(problem, seed, way))

    def keep(self, problem: Problem, seed: int, way: Way, race: Race) -> None:
        self._races[_key(problem, seed, way)] = race
        kept.add(self._path, {"of": _key(problem, seed, way), **asdict(race)})


def _race(said: Mapping[str, Any]) -> tuple[str, Race]:
    return said["of"], Race(tuple(said["accuracy"]), tuple(said["bytes"]))


def _key(problem: Problem, seed: int, way: Way) -> str:
    job = problem.job(seed).to_dict()
    job["data"]["source"] = problem.file or job["data"]["source"]  # wherever the file is
    return json.dumps([job, asdict(way)], sort_keys=True)
