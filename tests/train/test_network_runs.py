"""Runs on imitated devices: the records a real run would have, and a diagnosis that reads them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from small_jobs import recorded, run, small

from fedvitals.diagnose import diagnose
from fedvitals.errors import JobError
from fedvitals.train.device import ServerDevice
from fedvitals.train.network import network_of
from fedvitals.vocabulary import PHASES, Outcome, Participation

VIRTUAL = {"execute.clock": "virtual"}
MOBILE = {**VIRTUAL, "network.profile": "mobile"}
PARAMETERS = 12 * 8 + 8 + 8 * 4 + 4


def _participations(folder: Path) -> list[Participation]:
    with recorded(folder) as reader:
        return list(reader.participations())


def _file(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "devices.csv"
    path.write_text(text, encoding="utf-8")
    return {**VIRTUAL, "network.profile": str(path), "train.clients_per_round": 6}


def test_a_round_has_all_its_parts(tmp_path: Path) -> None:
    """Select, the slowest client, aggregate and evaluate, one after the other without a gap."""
    run(small({**MOBILE, "network.profile": "lan", "train.clients_per_round": 6}), tmp_path)
    server = ServerDevice()
    with recorded(tmp_path) as reader:
        rounds = reader.rounds()
        for one in rounds:
            spans = {span.name: span for span in reader.spans() if span.round == one.number and span.name in PHASES}
            some = reader.participations(round=one.number)
            assert set(spans) == {"select", "aggregate", "evaluate"}
            length = {name: ((span.end_ns or 0) - span.start_ns) / 1e9 for name, span in spans.items()}
            assert length["select"] == pytest.approx(server.select_s(6))
            assert length["aggregate"] == pytest.approx(server.aggregate_s(6, PARAMETERS), abs=2e-9)
            assert length["evaluate"] >= server.evaluate_s(60, PARAMETERS) - 1e-9
            assert spans["select"].start_ns == one.start_ns
            assert {part.start_ns for part in some} == {spans["select"].end_ns}
            assert max(part.end_ns for part in some) == spans["aggregate"].start_ns
            assert spans["aggregate"].end_ns == spans["evaluate"].start_ns
            assert spans["evaluate"].end_ns == one.end_ns
    assert rounds[0].end_ns == rounds[1].start_ns


def test_slow_aggregation_adds_to_the_servers_own(tmp_path: Path) -> None:
    """Half an hour, on top of what the nominal server needs."""
    faults = [{"kind": "slow-aggregation", "strength": 1800.0}]
    run(small({**MOBILE, "network.profile": "lan", "faults": faults}), tmp_path)
    with recorded(tmp_path) as reader:
        spans = [span for span in reader.spans() if span.name == "aggregate"]
    own = ServerDevice().aggregate_s(4, PARAMETERS)
    assert [((span.end_ns or 0) - span.start_ns) / 1e9 for span in spans] == pytest.approx([1800 + own] * 2, abs=2e-9)


def test_a_file_of_devices_sets_the_times(tmp_path: Path) -> None:
    """Each client's phases are those of its row."""
    rows = "".join(f"{number},{number + 1},{(number + 1) / 10},{number}\n" for number in range(6))
    run(small(_file(tmp_path, "client,down_mbps,up_mbps,step_ms\n" + rows)), tmp_path / "runs")
    for one in _participations(tmp_path / "runs"):
        assert one.steps is not None
        assert one.wire_bytes_down is not None
        assert one.wire_bytes_up is not None
        assert one.samples is not None
        number = int(one.client)
        assert one.phases_s == pytest.approx(
            {
                "download": 0.02 + one.wire_bytes_down * 8 / (1e6 * (number + 1)),
                "load": 0.0,
                "train": 6 * PARAMETERS * one.samples * 2 / 1e9 + one.steps * number / 1000,
                "upload": 0.02 + one.wire_bytes_up * 8 / (1e5 * (number + 1)),
            }
        )
        assert one.duration_s == pytest.approx(sum(one.phases_s.values()), abs=1e-8)
        assert one.attributed == 0


def test_a_bad_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """As any bad job is."""
    with pytest.raises(JobError, match="line 2, column loss: '2' should be"):
        run(small(_file(tmp_path, "loss\n2\n")), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_retries_are_recorded(tmp_path: Path) -> None:
    """How often each transfer was begun again stands in the participation's metrics, and it took longer for it."""
    run(small({**_file(tmp_path, "loss\n0.4\n"), "train.rounds": 6}), tmp_path / "runs")
    network = network_of(str(tmp_path / "devices.csv"), [str(number) for number in range(6)], 42)
    done = [one for one in _participations(tmp_path / "runs") if one.outcome == Outcome.USED]
    again = [one for one in done if one.metrics is not None]
    assert 5 < len(again) < len(done)
    for one in done:
        told = json.loads(one.metrics or "{}")
        assert set(told) <= {"download_retries", "upload_retries"}
        assert all(count > 0 for count in told.values())
        assert one.wire_bytes_up is not None
        once = network.devices[0].upload_s(one.wire_bytes_up)
        assert (one.phases_s["upload"] > once * 1.0001) == ("upload_retries" in told)


def test_a_hopeless_link_costs_its_client_alone(tmp_path: Path) -> None:
    """Given up in download or upload, with a failure that says so; the others go on."""
    rows = "".join(f"{number},{0.97 if number == 2 else 0}\n" for number in range(6))
    result = run(small({**_file(tmp_path, "client,loss\n" + rows), "train.rounds": 5}), tmp_path / "runs")
    with recorded(tmp_path / "runs") as reader:
        failures, rounds = reader.failures(), reader.rounds()
    assert result.failed == len(failures) > 1
    assert {one.client for one in failures} == {"2"}
    assert {one.stage for one in failures} <= {"download", "upload"}
    assert {one.message for one in failures} <= {
        f"the {phase} broke off 6 times and was given up" for phase in ("download", "upload")
    }
    assert [(one.used, one.failed) for one in rounds if one.failed] == [(5, 1)] * len(failures)


def test_an_update_that_is_lost_on_its_way_is_not_used(tmp_path: Path) -> None:
    """Some uploads of a bad link are given up after the client has trained."""
    job = small({**_file(tmp_path, "loss\n0.8\n"), "train.rounds": 6})
    run(job, tmp_path / "runs")
    found = [one for one in _participations(tmp_path / "runs") if one.outcome == Outcome.FAILED]
    trained = [one for one in found if "upload" in one.phases_s]
    assert trained
    assert all(one.phases_s["train"] > 0 for one in trained)
    assert all(one.applied_version is None for one in found)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_bytes_are_those_of_what_came(mode: str, tmp_path: Path) -> None:
    """An upload that was given up counts nothing; a download that was is paid for again, with what came to it."""
    job = {**_file(tmp_path, "loss\n0.7\n"), "train.rounds": 12, "codec.up": "fp16", "codec.down": "topk:0.02 | fp16"}
    if mode == "async":
        job |= {"server.mode": "async", "server.buffer": 2, "server.concurrency": 6}
    result = run(small(job), tmp_path / "runs")
    some = _participations(tmp_path / "runs")
    assert sum(one.wire_bytes_up or 0 for one in some) == result.bytes_up
    assert sum(one.wire_bytes_down or 0 for one in some) == result.bytes_down
    by_client = sorted(some, key=lambda one: (one.client, one.attempt))
    pairs = [(one, then) for one, then in itertools.pairwise(by_client) if one.client == then.client]
    lost = [(one, then) for one, then in pairs if one.outcome == Outcome.FAILED and "train" not in one.phases_s]
    assert lost
    more = [(then.wire_bytes_down or 0) - (one.wire_bytes_down or 0) for one, then in lost]
    assert min(more) >= (0 if mode == "async" else 1)  # with rounds there is a step between
    assert any(one.wire_bytes_down for one, _ in lost)


def test_who_goes_away_is_dropped(tmp_path: Path) -> None:
    """With the phases it went through, and a failure that names the last of them."""
    run(small({**_file(tmp_path, "dropout\n0.4\n"), "train.rounds": 6}), tmp_path / "runs")
    with recorded(tmp_path / "runs") as reader:
        failures = {(one.client, one.attempt): one for one in reader.failures()}
        some = reader.participations()
    gone = [one for one in some if one.outcome == Outcome.DROPPED]
    assert 3 < len(gone) < len(some)
    for one in gone:
        failure = failures.pop((one.client, one.attempt))
        assert failure.message.startswith("went away after ")
        assert failure.stage == list(one.phases_s)[-1]
        assert one.duration_s == pytest.approx(sum(one.phases_s.values()), abs=1e-8)
    assert failures == {}


def test_who_is_away_is_not_asked_and_rounds_wait_for_somebody(tmp_path: Path) -> None:
    """With devices that are hardly ever there, a round waits, and begins with those that came."""
    run(small({**_file(tmp_path, "available\n0.02\n"), "train.rounds": 4}), tmp_path / "runs")
    with recorded(tmp_path / "runs") as reader:
        rounds, spans = reader.rounds(), sorted(reader.spans(), key=lambda one: one.start_ns)
    waits, selects = ([one for one in spans if one.name == name] for name in ("wait", "select"))
    assert waits
    assert all(((one.end_ns or 0) - one.start_ns) % (60 * 10**9) == 0 for one in waits)
    assert {one.selected for one in rounds} <= {1, 2}
    assert [json.loads(one.attributes or "{}")["available"] for one in selects] == [one.selected for one in rounds]


def test_excluded_clients_take_no_part(tmp_path: Path) -> None:
    """Whoever is left is asked, even where that is fewer than a round would have."""
    result = run(small({"train.exclude": ["1", 4], "train.clients_per_round": 6}), tmp_path)
    assert {one.client for one in _participations(tmp_path)} == set("0235")
    assert result.weights_sha256 == run(small({"train.exclude": [4, 1], "train.clients_per_round": 4})).weights_sha256


def test_the_run_tells_its_devices(tmp_path: Path) -> None:
    """In the units of a file of devices, so that such a file can be written from them."""
    run(small(MOBILE), tmp_path / "mobile")
    run(small(VIRTUAL), tmp_path / "none")
    run(small(), tmp_path / "real")
    with recorded(tmp_path / "mobile") as reader:
        said = reader.run().environment["network"]
    assert said["profile"] == "mobile"
    assert said["clients"] == 6
    assert list(said["devices"]) == list("012345")
    device = network_of("mobile", ["3"], 42).devices[0]
    assert said["devices"]["3"]["up_mbps"] * 1e6 == pytest.approx(device.up_bits_per_s, rel=1e-3)
    assert said["devices"]["3"]["loss"] == pytest.approx(device.loss, rel=1e-3)
    with recorded(tmp_path / "none") as reader:
        assert reader.run().environment["network"]["devices"] == {}
    with recorded(tmp_path / "real") as reader:
        assert "network" not in reader.run().environment


def test_a_straggler_among_phones_is_found(tmp_path: Path) -> None:
    """Phones differ tenfold; one that is forty times slower still stands out, and nobody else is accused."""
    changes = {
        **MOBILE,
        "data.clients": 20,
        "data.rows": 100,
        "train.clients_per_round": 10,
        "train.rounds": 30,
        "faults": [{"kind": "slow-compute", "clients": [3], "strength": 40.0}],
    }
    run(small(changes, executor="vectorised"), tmp_path)
    with recorded(tmp_path) as reader:
        found = diagnose(reader).findings
    accused = [one for one in found if one.code == "FL201"]
    assert [one.clients for one in accused] == [("3",)]
