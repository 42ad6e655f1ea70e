"""Bad jobs: one clear error each, with the file, the key, the value and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedvitals.errors import JobError
from fedvitals.faults.spec import FaultSpec
from fedvitals.train.job import MAX_FILE_BYTES, Job
from fedvitals.train.sections import DataSpec, TrainSpec

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"trian": {}}, "no key or section 'trian'; did you mean 'train'?"),
    ({"data": {"client": 3}}, "data.client: there is no such key; did you mean 'clients'?"),
    ({"data": 5}, "data = 5 should be a section"),
    ({"data": {"clients": True}}, "data.clients = true should be a whole number"),
    ({"data": {"clients": 2.5}}, "data.clients = 2.5 should be a whole number"),
    ({"data": {"clients": "20"}}, 'data.clients = "20" should be a whole number'),
    ({"train": {"lr": "fast"}}, 'train.lr = "fast" should be a number'),
    ({"train": {"lr": True}}, "train.lr = true should be a number"),
    ({"train": {"lr": 0}}, "train.lr = 0 is out of range; right is above 0 and at most 1e+06"),
    ({"train": {"lr": float("nan")}}, "train.lr = nan is not a finite number"),
    ({"train": {"lr": float("inf")}}, "train.lr = inf is not a finite number"),
    ({"train": {"lr": 10**5000}}, "train.lr = a number of thousands of digits is out of range"),
    ({"train": {"clients_per_round": 0}}, "train.clients_per_round = 0 is out of range; right is at least 1"),
    (
        {"train": {"clients_per_round": 21}},
        "= 21 is more than data.clients = 20; right is at most 20",
    ),
    ({"data": {"holdout": 1.0}}, "data.holdout = 1.0 is out of range; right is at least 0 and at most 0.9"),
    ({"data": {"partition": "dirchlet"}}, "is not one of iid, dirichlet, shards, quantity, natural; did you mean"),
    ({"data": {"source": "mnist"}}, "or a path to an .npz file, or module:function"),
    ({"data": {"clients": 0}}, 'data.clients = 0 (all) is for partition = "natural"'),
    ({"data": {"partition": "natural"}}, "digits has no clients of its own"),
    ({"model": {"kind": "mpl"}}, "did you mean 'mlp'"),
    ({"model": {"hidden": 64}}, "model.hidden = 64 should be a list of whole numbers"),
    ({"model": {"hidden": [64, 0]}}, "model.hidden = [64, 0] is out of range"),
    ({"model": {"hidden": [64, True]}}, "should be a list of whole numbers"),
    ({"model": {"hidden": [1] * 33}}, "model.hidden has 33 entries; at most 32"),
    ({"model": {"kernel": 4}}, "model.kernel = 4 should be odd"),
    ({"model": {"kind": "gru", "hidden": []}}, "leaves the gru without a size"),
    ({"model": {"kind": "cnn", "channels": []}}, "leaves the cnn without a convolution"),
    ({"seed": -1}, "seed = -1 should be a whole number from 0"),
    ({"seed": True}, "seed = true should be a whole number"),
    ({"name": "a/b"}, 'name = "a/b" should be a plain name'),
    ({"name": ".."}, "no '..'"),
    ({"name": "-x"}, "no '.' or '-' at the start"),
    ({"name": ""}, "should be a plain name"),
    ({"name": "two words"}, "should be a plain name"),
    ({"name": 3}, "name = 3 should be text"),
    ({"server": {"aggregator": "fedavgg"}}, "did you mean 'fedavg'"),
    ({"network": {"profile": "mobil"}}, "or a path to a .csv file; did you mean 'mobile'?"),
    ({"network": {"profile": "my:network"}}, "is not one of none, lan, broadband, mobile, cross-silo"),
    ({"network": {"profile": "mobile"}}, 'it needs execute.clock = "virtual"; on the real clock network.profile = '),
    (
        {"server": {"deadline_s": 3}},
        "server.deadline_s = 3.0 on the real clock needs rounds whose clients have a worker",
    ),
    (
        {"server": {"over_select": 1.5}},
        'execute.executor = "processes" and execute.workers of at least 8, or who is late',
    ),
    (
        {"server": {"over_select": 1.5}, "execute": {"executor": "processes", "workers": 7}},
        "server.over_select = 1.5 on the real clock needs",
    ),
    ({"train": {"exclude": "7"}}, 'train.exclude = "7" should be a list of clients\' names'),
    ({"train": {"exclude": [True]}}, "should be a list of clients' names"),
    ({"train": {"exclude": ["1", "199"]}}, "train.exclude: there is no client '199'; did you mean '19'?"),
    ({"data": {"clients": 5}, "train": {"exclude": [0, 1, 2, 3, 4]}}, "train.exclude leaves none of 5 clients"),
    ({"faults": {"kind": "crash"}}, "should be a list of tables"),
    ({"faults": [{"clients": [1]}]}, "faults number 1 has no kind"),
    ({"faults": [{"kind": "crash", "client": [1]}]}, "no key 'client'; did you mean 'clients'?"),
    ({"faults": [{"kind": "sign-flop", "clients": [1]}]}, "did you mean 'sign-flip'"),
    ({"faults": [{"kind": "crash", "clients": [20]}]}, "client '20', who is not there; clients are 0 to 19"),
    ({"faults": [{"kind": "crash"}]}, "neither clients nor share"),
    ({"faults": [{"kind": "crash", "clients": [1], "share": 0.5}]}, "both clients and share"),
    ({"faults": [{"kind": "crash", "share": 0.5, "strength": 2}]}, "crash takes no strength"),
    (
        {"faults": [{"kind": "crash", "clients": [1]}, {"kind": "crash", "clients": ["1"], "from_round": 9}]},
        "number 1 and number 2 are both 'crash'",
    ),
    ({"server": {"selection": "ort"}}, 'server.selection = "ort" is not one of random, round-robin, available, oort'),
    ({"server": {"late": "use"}}, 'server.late = "use" is for server.mode = "async"'),
    ({"server": {"late": "stop"}}, 'server.late = "stop" is for server.mode = "async"'),
    ({"server": {"selection": "pisces"}}, 'server.selection = "pisces" goes by how stale updates are'),
    ({"server": {"aggregator": "fedasync"}}, 'server.aggregator = "fedasync" goes by how stale updates are'),
    ({"server": {"staleness_bound": -1}}, "server.staleness_bound = -1 is out of range; right is at least 0"),
    (
        {"server": {"mode": "async", "over_select": 1.5}, "execute": {"clock": "virtual"}},
        'server.over_select = 1.5 is for rounds; server.mode = "async" has none',
    ),
    ({"server": {"mode": "async", "buffer": 21}}, "server.buffer = 21 would never fill"),
    (
        {"server": {"mode": "async"}, "execute": {"executor": "vectorised"}},
        'execute.executor = "vectorised" has none; right is "processes", or execute.clock = "virtual"',
    ),
    ({"server": {"mode": "async", "staleness_weight": "old"}}, 'server.staleness_weight = "old" is not one of'),
    ({"server": {"mode": "async", "deadline_s": 3}}, "server.deadline_s = 3.0 on the real clock needs rounds"),
    ({"server": {"floor": 1.5}}, "server.floor = 1.5 is out of range"),
]


@pytest.mark.parametrize(("job", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_refused_by_name(job: dict[str, Any], words: str) -> None:
    """The error names the source, the key and the value, and says what would be right."""
    with pytest.raises(JobError) as caught:
        Job.from_dict(job, source="bad.toml")
    assert str(caught.value).startswith("bad.toml: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


UNBUILT: list[tuple[dict[str, Any], str]] = [
    ({"execute": {"executor": "flower"}}, '"auto", "vectorised", "sequential", "processes"'),
]


@pytest.mark.parametrize(("job", "there"), UNBUILT, ids=[str(job) for job, _ in UNBUILT])
def test_what_is_not_built_is_said_so(job: dict[str, Any], there: str) -> None:
    """A word of the contract that this version cannot carry out is refused, with what there is."""
    with pytest.raises(JobError, match="is not available in this version; what there is: ") as caught:
        Job.from_dict(job)
    assert str(caught.value).endswith(there)


FILES: list[tuple[str, bytes, str]] = [
    ("toml", b"[train]\nlr = \n", "line 2"),
    ("utf-8", b'name = "\xff"', "is not UTF-8 text: byte 8"),
    ("large", b"#" * (MAX_FILE_BYTES + 1), "is larger than 1,000,000 bytes"),
    ("deep", b"x = " + b"[" * 100_000, "is not valid TOML"),
    ("twice", b"[train]\nlr = 1\nlr = 2\n", "is not valid TOML"),
]


@pytest.mark.parametrize(("data", "words"), [case[1:] for case in FILES], ids=[case[0] for case in FILES])
def test_files_that_are_no_jobs(tmp_path: Path, data: bytes, words: str) -> None:
    """A damaged, huge or foreign file gives one error with its path."""
    path = tmp_path / "job.toml"
    path.write_bytes(data)
    with pytest.raises(JobError) as caught:
        Job.load(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    """A path that leads nowhere, or to a folder, is named."""
    with pytest.raises(JobError, match="there is no such file"):
        Job.load(tmp_path / "none.toml")
    with pytest.raises(JobError, match="is not a file"):
        Job.load(tmp_path)


def test_objects_are_judged_like_files() -> None:
    """A section made in code cannot hold what a file could not."""
    with pytest.raises(JobError, match=r"data\.clients = -1 is out of range"):
        DataSpec(clients=-1)
    with pytest.raises(JobError, match=r"more than data\.clients"):
        Job(data=DataSpec(clients=3), train=TrainSpec(clients_per_round=4))
    with pytest.raises(JobError, match="data should be a DataSpec"):
        Job(data={"clients": 3})  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(JobError, match="faults should be FaultSpecs"):
        Job(faults=[{"kind": "crash"}])  # type: ignore[arg-type]  # the mistake under test
    assert Job(faults=(FaultSpec("crash", ("1",)),)).faults[0].kind == "crash"
