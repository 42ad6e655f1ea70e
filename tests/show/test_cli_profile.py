"""`fedvitals profile`: the bottleneck, what would make the run shorter, and --verify, with real runs in a store."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from recorded import write_run

import fedvitals
from fedvitals.codecs import names, register
from fedvitals.codecs.registry import unregister
from fedvitals.codecs.roundings.halved import Halved
from fedvitals.profile.profile import profile_of
from fedvitals.profile.whatif.changes.compress import OFFERED
from fedvitals.profile.whatif.prediction import Declined, Prediction, Verified
from fedvitals.profile.whatif.registry import what_if
from fedvitals.show import profiles
from fedvitals.show.cli.main import main
from fedvitals.show.report.contents import contents_of
from fedvitals.store import SQLiteStore

Capture = pytest.CaptureFixture[str]
KEYS = ["change", "kind", "predicted_s", "measured_s", "machine", "run", "why", "error", "error_apart"]
JOB = """
name = "small"
[data]
source = "synthetic"
clients = 12
rows = 40
partition = "quantity"
[model]
kind = "logistic"
[train]
rounds = 6
clients_per_round = 5
epochs = 1
batch_size = 8
"""
VIRTUAL = '[network]\nprofile = "mobile"\n[execute]\nclock = "virtual"\n'
REAL = '[execute]\nexecutor = "sequential"\n[[faults]]\nkind = "timeout"\nclients = [0, 1, 2, 3]\nstrength = 0.05\n'


def _run(tmp_path: Path, capsys: Capture, more: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB + more, encoding="utf-8")
    assert main(["run", str(path), "--quiet"]) == 0
    capsys.readouterr()


def _json(capsys: Capture) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_profile_ends_with_what_would_make_it_shorter(tmp_path: Path, capsys: Capture) -> None:
    """The bottleneck, then changes by what they save, each with what it assumes, then what is not predicted."""
    _run(tmp_path, capsys, VIRTUAL)
    assert main(["profile", "last"]) == 0
    said = capsys.readouterr().out
    parts = ("\nbottleneck ", "what would make it shorter", "\nassumes ", "\nnot predicted ")
    places = [said.index(words) for words in parts]
    assert places == sorted(places)
    assert "drop client" in said
    assert "not predicted   train in bf16" in said


def test_json_has_every_prediction(tmp_path: Path, capsys: Capture) -> None:
    """With its keys of the job, its assumptions, and the same numbers as `what_if`."""
    _run(tmp_path, capsys, VIRTUAL)
    assert main(["profile", "last", "--json"]) == 0
    document = _json(capsys)
    assert "verified" not in document
    found = document["what_if"]
    assert len(found) >= 5
    assert all(one["assumes"] and one["predicted_s"] < document["wall_s"] for one in found)
    assert [one["predicted_s"] for one in found] == sorted(one["predicted_s"] for one in found)
    by_kind = {one["kind"]: one for one in found}
    assert by_kind["drop"]["job"]["train.exclude"]
    assert by_kind["compress"]["job"]["codec.up"] in [codec for codec, _ in OFFERED]
    assert by_kind["async"]["job"]["server.mode"] == "async"
    assert all(one["unverified"] is None for one in found)
    assert [one["kind"] for one in document["not_predicted"]] == ["bf16"]


def test_verify_runs_the_job_with_the_change(tmp_path: Path, capsys: Capture) -> None:
    """As many as asked for, in a folder of their own; on the virtual clock they are met."""
    _run(tmp_path, capsys, VIRTUAL)
    assert main(["profile", "last", "--json", "--verify", "2"]) == 0
    said = capsys.readouterr()
    assert said.err.count("running it: ") == 2
    verified = json.loads(said.out)["verified"]
    assert [list(one) for one in verified] == [KEYS] * 2
    assert all(abs(one["error"]) < 0.05 for one in verified)
    assert len(SQLiteStore(tmp_path / "runs").runs()) == 1
    assert main(["profile", "last", "--verify", "1"]) == 0
    assert "predicted against measured" in capsys.readouterr().out


def test_verify_on_the_real_clock_says_how_the_machine_is(tmp_path: Path, capsys: Capture) -> None:
    """The job as it was comes first: its error is the machine's."""
    _run(tmp_path, capsys, REAL)
    assert main(["profile", "last", "--json", "--verify", "1"]) == 0
    verified = _json(capsys)["verified"]
    assert len(verified) == 2
    assert verified[0]["change"] == "as it was"
    assert all(one["measured_s"] > 0 for one in verified)
    assert verified[0]["error_apart"] == pytest.approx(0.0)
    assert verified[0]["machine"] == verified[1]["machine"] == pytest.approx(1 / (1 + verified[0]["error"]))


def test_a_run_that_no_job_made_cannot_be_verified(tmp_path: Path, capsys: Capture) -> None:
    """It says so with exit code 2; its profile is shown without the flag."""
    write_run(tmp_path / "runs")
    assert main(["profile", "last", "--verify"]) == 2
    said = capsys.readouterr()
    assert "no job of the engine" in said.err
    assert said.out == ""
    assert main(["profile", "last"]) == 0
    assert "bottleneck" in capsys.readouterr().out


def test_a_run_that_was_cut_off_is_not_held_against_a_whole_one(tmp_path: Path, capsys: Capture) -> None:
    """Its job, made again, would go on to the end."""
    _run(tmp_path, capsys, VIRTUAL)
    database = next((tmp_path / "runs").glob("*/run.db"))
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE run SET status = 'failed'")
    assert main(["profile", "last", "--verify"]) == 2
    assert "it is failed" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "x", "-1"])
def test_verify_takes_a_number_of_changes(number: str, capsys: Capture) -> None:
    """At least one."""
    with pytest.raises(SystemExit) as left:
        main(["profile", "last", f"--verify={number}"])
    assert left.value.code == 2
    assert "--verify" in capsys.readouterr().err


def test_a_user_s_own_loop_gets_predictions() -> None:
    """From `run.profile()`, without a store in hand."""
    with fedvitals.start("own") as run:
        for number in range(3):
            with run.round(number) as rnd:
                for client in ("a", "b"):
                    with rnd.client(client, samples=10):
                        sum(range(20_000 if client == "a" else 200_000))
    found = what_if(run.profile()).predictions
    assert [one.kind for one in found].count("drop") == 1
    assert all(one.unverified for one in found)


def test_what_failed_is_told_as_such() -> None:
    """A changed job that cannot run has no measured time, and names why; strangers' words are made harmless."""
    failed = Verified("drop client \x1b[2J", "drop", 3.0, None, why="round 0: nobody\x1b[31m left")
    table = profiles.verified_table([failed, Verified("x", "drop", 3.0, 2.0, machine=0.8)])
    assert table.rows[0][-2].startswith("failed: round 0")
    assert "\x1b" not in "".join(table.rows[0])
    assert table.rows[1][-2:] == ("+50.0%", "+20.0%")


def test_assumptions_are_said_once_with_their_numbers() -> None:
    """And after them what is not predicted."""
    some = [Prediction(f"change {n}", "drop", 1.0, 0.1, 0.5, ("the same", f"own {n}"), None, "later") for n in (1, 2)]
    lines = profiles.assumption_lines(some, [Declined("bf16", "bf16", "nobody knows")])
    assert lines[0] == ("assumes", "the same [1, 2]")
    assert ("unverified", "later [1, 2]") in lines
    assert lines[-1] == ("not predicted", "bf16: nobody knows")


def test_an_empty_run_predicts_nothing(tmp_path: Path, capsys: Capture) -> None:
    """And is no error."""
    with fedvitals.start("empty"):
        pass
    with closing(SQLiteStore(tmp_path / "runs").open("last")) as reader:
        assert reader.rounds() == []
    assert main(["profile", "last", "--json"]) == 0
    assert _json(capsys)["what_if"] == []


def test_codecs_are_tried_on_kept_updates(tmp_path: Path, capsys: Capture) -> None:
    """Real bytes of the updates of the run; without updates, or with no such codec, it says what is missing."""
    _run(tmp_path, capsys, "[observe]\nkeep_updates = true\n")
    assert main(["profile", "last", "--codec", "identity", "--json"]) == 0
    (found,) = _json(capsys)["codecs"]
    assert (found["codec"], found["updates"]) == ("identity", 30)
    assert found["raw_bytes"] <= found["wire_bytes"] < found["raw_bytes"] + 40
    assert main(["profile", "last", "--codec", "identity"]) == 0
    assert "what codecs would have sent" in capsys.readouterr().out
    assert main(["profile", "last", "--codec", "idntity"]) == 2
    assert "did you mean 'identity'" in capsys.readouterr().err
    _run(tmp_path, capsys, "")
    assert main(["profile", "last", "--codec", "identity"]) == 2
    assert "keep_updates" in capsys.readouterr().err


def test_every_registered_codec_is_tried_at_once(tmp_path: Path, capsys: Capture) -> None:
    """With a usual argument where it needs one, and one's own too; those that send least come first."""
    register("mine", lambda argument: {"rounding": Halved("fp16")})
    try:
        _run(tmp_path, capsys, "[observe]\nkeep_updates = true\n")
        assert main(["profile", "last", "--codec", "all", "--json"]) == 0
        found = _json(capsys)["codecs"]
        assert {one["codec"].partition(":")[0].partition("(")[0] for one in found} == set(names())
    finally:
        unregister("mine")
    sizes = [one["wire_bytes"] for one in found]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] / 10


def test_a_page_predicts_as_the_command_does(tmp_path: Path, capsys: Capture) -> None:
    """By the bytes that codecs make of the updates that were kept, not by those of any such layers."""
    _run(tmp_path, capsys, VIRTUAL + "[observe]\nkeep_updates = true\n")
    assert main(["profile", "last", "--json"]) == 0
    said = {one["change"]: one["predicted_s"] for one in _json(capsys)["what_if"]}
    with closing(SQLiteStore(tmp_path / "runs").open("last")) as reader:
        page = {one.change: one.predicted_s for one in contents_of(reader).predictions}
        alone = {one.change for one in what_if(profile_of(reader)).predictions}
    assert page == said
    assert alone != set(said)


def test_a_profile_tells_that_updates_were_kept(tmp_path: Path, capsys: Capture) -> None:
    """And what they came through: other codecs are tried on what that one left."""
    _run(tmp_path, capsys, '[observe]\nkeep_updates = true\n[codec]\nup = "topk:0.1"\n')
    assert main(["profile", "last"]) == 0
    assert "30 updates kept, after topk:0.1: another codec gets what that one left" in capsys.readouterr().out


def test_everything_tells_of_each_clients_time_and_bytes(tmp_path: Path, capsys: Capture) -> None:
    """With --all; and how often clients answered in any case."""
    _run(tmp_path, capsys, VIRTUAL)
    assert main(["profile", "last", "--all"]) == 0
    said = capsys.readouterr().out
    assert all(part in said for part in ("clients' own time", "bytes by client", "down in all", "\nanswers "))
    assert main(["profile", "last", "--json"]) == 0
    found = _json(capsys)
    assert {one["client"] for one in found["communication"]["clients"]} == {one["client"] for one in found["clients"]}
    asked, course = sum(one["asked"] for one in found["rounds"]), found["course"]
    assert (course["asked"], course["availability"]) == (asked, course["answered"] / asked)
    assert set(found["breakdown_s"]) >= set(found["clients_breakdown_s"])
