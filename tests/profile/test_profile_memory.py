"""Where memory went: of real runs, and of records that a client made up."""

from __future__ import annotations

import json
import mmap
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedvitals
from fedvitals.capture.accelerator import DeviceSample
from fedvitals.profile.memory import MemoryProfile, Point, memory_profile
from fedvitals.run import Run
from fedvitals.settings import Settings
from fedvitals.testing import FakeAccelerator
from fedvitals.vocabulary import Participation, ResourceSample, Span, Status
from fedvitals.vocabulary import Run as RunRecord

MB = 2**20


class Told:
    """A reader of these records alone."""

    def __init__(
        self, spans: list[Span] | None = None, metrics: str | None = None, samples: list[ResourceSample] | None = None
    ) -> None:
        self._spans, self._metrics, self._samples = spans or [], metrics, samples or []

    def run(self) -> RunRecord:
        return RunRecord("r", "r", Status.FINISHED, 0)

    def spans(self) -> list[Span]:
        return self._spans

    def resources(self) -> list[ResourceSample]:
        return self._samples

    def participation_columns(self, fields: Collection[str]) -> dict[str, np.ndarray]:
        one = Participation("a", 0, 0, 0, None, None, "used", None, None, None, 0, 9, metrics=self._metrics)
        return {name: np.array([value], dtype=object) for name, value in one._asdict().items() if name in fields}


def profile_of(told: Told) -> MemoryProfile:
    return memory_profile(told)  # type: ignore[arg-type]  # it has what is asked for here


def span(attributes: Any, name: str = "train", **values: Any) -> Span:
    text = attributes if isinstance(attributes, str) else json.dumps(attributes)
    return Span(1, None, name, 0, 9, attributes=text, **values)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> MemoryProfile:
    """A run of two clients, one of which takes 60 MB for a while, with everything that can be asked for."""
    folder: Path = tmp_path_factory.mktemp("runs")
    settings = Settings(dir=str(folder), resources_every_s=3600.0)
    device = [DeviceSample("cuda:0", 10, 30, 100, 0.5)]
    run = fedvitals.start("memory", settings=settings, accelerator=FakeAccelerator(device))
    assert isinstance(run, Run)
    model = nn.Linear(4, 2)
    with run, run.round(0, model=model) as rnd:
        for client in ("small", "large"):
            with rnd.client(client) as c:
                with c.phase("train"):
                    if client == "large":
                        assert (
                            torch.frombuffer(mmap.mmap(-1, 60 * MB), dtype=torch.uint8).fill_(1).numel() > 0
                        )  # new pages
                with c.phase("packing"):
                    pass
        with rnd.phase("aggregate"):
            pass
        with rnd.allocations("ones"):
            kept = torch.ones(1000)
        assert kept.numel() == 1000
    with closing(fedvitals.open_store(settings).open("last")) as reader:
        return memory_profile(reader)


def test_phases_and_clients_are_put_in_the_order_of_what_they_took(profile: MemoryProfile) -> None:
    """The phase and the client that took 60 MB come first, by the user's own names."""
    assert {one.name for one in profile.phases} == {"train", "packing", "aggregate"}
    assert {one.name for one in profile.clients} == {"small", "large"}
    assert profile.how in ("exact", "sampled")
    if profile.how == "exact":
        train, client, top = profile.phases[0], profile.clients[0], profile.top[0]
        assert (train.name, train.count, client.name) == ("train", 2, "large")
        assert train.rise_bytes == pytest.approx(60 * MB, rel=0.05)
        assert (top.name, top.client, top.round) == ("train", "large", 0)
        assert top.rise_bytes == train.rise_bytes
        assert client.peak_bytes >= train.peak_bytes == top.peak_bytes


def test_memory_over_time_tensors_allocations_and_devices(profile: MemoryProfile) -> None:
    """Each is there, with its numbers."""
    assert profile.points
    assert profile.peak_bytes is not None
    assert profile.peak_bytes >= max(one.rss_bytes for one in profile.points)
    assert profile.limit_bytes is not None
    ((tensors),) = profile.tensors
    assert (tensors.client, tensors.parameters_bytes, tensors.optimizer_bytes) == (None, 4 * 10, None)
    ((asked),) = profile.allocations
    assert (asked.name, asked.round, asked.not_profiled) == ("ones", 0, None)
    assert asked.operations[0].cpu_bytes >= 4000
    ((device),) = profile.devices
    assert (device.name, device.peak_bytes, device.total_bytes, device.busy_ratio) == ("cuda:0", 30, 100, 0.5)


def test_a_run_without_any_of_it_has_an_empty_profile() -> None:
    """None rather than 0 where nothing is known."""
    found = profile_of(Told())
    assert (found.points, found.peak_bytes, found.growth_bytes, found.limit_bytes) == ((), None, None, None)
    assert (found.phases, found.clients, found.top, found.tensors, found.devices) == ((), (), (), (), ())


@pytest.mark.parametrize(
    "told",
    [
        '{"rss_bytes": ',
        '["rss_bytes"]',
        '{"rss_bytes": 7}',
        '{"rss_bytes": [1, 2]}',
        '{"rss_bytes": [1, "2", 3]}',
        '{"rss_bytes": [1, -2, 3]}',
        '{"rss_bytes": [true, 2, 1]}',
        '{"rss_bytes": [5, 4, 3]}',
        '{"rss_bytes": [1, 1e400, 3]}',
        json.dumps({"rss_bytes": [1, 2**80, 3]}),
        "[" * 5000 + '"rss_bytes"',
    ],
)
def test_what_a_client_made_up_is_left_out(told: str) -> None:
    """Numbers that cannot be, and text that is no JSON."""
    found = profile_of(Told([span(told, client="a")], told))
    assert (found.phases, found.clients, found.peak_bytes) == ((), (), None)


def test_tables_that_a_client_made_up_are_left_out_by_the_row() -> None:
    """Rows of another kind than [text, count, bytes, bytes]."""
    rows: list[Any] = [["aten::mm", 1, 2, 0], ["x", 1, 2], [1, 2, 3, 4], "row", ["x", True, 2, 3]]
    spans = [
        span({"operations": rows}, "fl.allocations"),
        span({"operations": 3}, "fl.allocations"),
        span("", "fl.tensors"),
    ]
    found = profile_of(Told(spans))
    assert [[one.name for one in table.operations] for table in found.allocations] == [["aten::mm"], []]
    assert [one.parameters_bytes for one in found.tensors] == [0]


def test_a_long_run_is_thinned_and_keeps_its_ends() -> None:
    """Growth is from the first sample to the last, whatever is drawn."""
    samples = [ResourceSample(at, 1, 1000 + at, 5000, 0.0, 1) for at in range(10_000)]
    found = profile_of(Told(samples=samples))
    assert len(found.points) == 2_000
    assert (found.points[0], found.points[-1]) == (Point(0, 1000, 5000), Point(9_999, 10_999, 5000))
    assert (found.growth_bytes, found.peak_bytes) == (9_999, 5000)
