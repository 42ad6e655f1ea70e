"""The codec bench: races that were run, a line each, so that a long bench goes on where it was stopped."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from fedvitals.bench.codecs.cases import Problem, Way
from fedvitals.bench.codecs.racing import Race

USUAL = Path(".bench") / "codecs.jsonl"


class Results:
    """A file of races. A race is another one when anything of its job or its way of sending is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._races: dict[str, Race] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    said = json.loads(line)
                except ValueError:  # cut off in the middle
                    continue
                self._races[said["of"]] = Race(tuple(said["accuracy"]), tuple(said["bytes"]))

    def find(self, problem: Problem, seed: int, way: Way) -> Race | None:
        return self._races.get(_key(problem, seed, way))

    def keep(self, problem: Problem, seed: int, way: Way, race: Race) -> None:
        self._races[_key(problem, seed, way)] = race
        said = {"of": _key(problem, seed, way), **asdict(race)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(said) + "\n")


def _key(problem: Problem, seed: int, way: Way) -> str:
    job = problem.job(seed).to_dict()
    job["data"]["source"] = problem.file or job["data"]["source"]  # wherever the file is
    return json.dumps([job, asdict(way)], sort_keys=True)
