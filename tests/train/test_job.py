"""A job: defaults, reading, writing, overriding."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.errors import JobError
from fedvitals.faults.registry import BY_KIND
from fedvitals.settings import BY_NAME
from fedvitals.train.job import SECTIONS, Job
from fedvitals.train.keys import Key
from fedvitals.train.sections import AGGREGATORS


def test_an_empty_job_is_the_documented_one() -> None:
    """The defaults are those of the design, so an empty file is a job."""
    job = Job.from_dict({})
    assert job == Job() == Job.from_dict({"data": {"source": "digits"}})
    assert (job.name, job.seed, job.data.source, job.data.clients) == ("digits", 42, "digits", 20)
    assert (job.train.rounds, job.train.clients_per_round, job.train.lr) == (30, 5, 0.1)
    assert (job.model.hidden, job.server.aggregator, job.execute.executor) == ((64,), "fedavg", "auto")


def test_every_key_has_a_default_and_a_meaning() -> None:
    """The reference page is generated from the fields, so none may be without a sentence."""
    for section in SECTIONS.values():
        for one in fields(section):  # type: ignore[arg-type]  # every section is a dataclass
            assert one.default is not MISSING
            assert one.metadata["key"].meaning.endswith((".", "`.")), one.name


def test_a_file_is_read_with_its_faults(tmp_path: Path) -> None:
    """A TOML file gives the job that it says, faults included; ids of clients become text."""
    path = tmp_path / "job.toml"
    path.write_text(
        'name = "mine"\n[data]\npartition = "iid"\nclients = 6\n[train]\nlr = 1\n'
        '[[faults]]\nkind = "sign-flip"\nclients = [3]\nfrom_round = 5\nstrength = 1.0\n'
    )
    job = Job.load(path)
    assert job.name == "mine"
    assert job.train.lr == 1.0
    assert type(job.train.lr) is float
    assert job.faults[0].clients == ("3",)
    assert job.faults[0].strikes_in(5)
    assert not job.faults[0].strikes_in(4)


def test_a_job_is_checked_without_torch_numpy_or_sklearn() -> None:
    """A bad job is refused before anything heavy is loaded."""
    code = (
        "import sys; from fedvitals.train.job import Job\n"
        "Job.from_dict({'faults': [{'kind': 'duplicate', 'share': 0.2}]})\n"
        "print(sorted({'torch', 'numpy', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_name_comes_from_the_source_where_there_is_none() -> None:
    """A job without a name is called after its data."""
    assert Job.from_dict({"data": {"source": "folder/mnist.npz"}}).name == "mnist"
    assert Job.from_dict({"data": {"source": "mine.rows:load"}}).name == "load"
    assert Job.from_dict({"data": {"source": "a..b.npz"}}).name == "job"


def test_overrides_by_dotted_key() -> None:
    """Values replace those of the job; texts are read as TOML, bare words stay words."""
    job = Job().replaced(
        {"train.lr": "0.5", "data.clients": 10, "model.hidden": "[32, 16]", "model.kind": "cnn", "name": "12"}
    )
    assert (job.train.lr, job.data.clients, job.model.hidden) == (0.5, 10, (32, 16))
    assert (job.model.kind, job.name) == ("cnn", "12")
    faulty = job.replaced({"faults": '[{kind = "crash", clients = [1]}]'})
    assert faulty.faults[0].kind == "crash"
    assert Job().replaced({"name": '"quoted"'}).name == "quoted"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("train.lrr", 1, "did you mean 'lr'"),
        ("trian.lr", 1, "did you mean 'train.lr'"),
        ("train", {}, "is a section"),
        ("train.lr", "fast", 'train.lr = "fast" should be a number'),
        ("train.lr", "1\n[server]\nlr = 2", "should be a number"),
        ("data.clients", 3, "clients_per_round = 5 is more than data.clients = 3"),
    ],
)
def test_bad_overrides_are_refused(key: str, value: object, words: str) -> None:
    """An override is judged like the file, and the error says that it was an override."""
    with pytest.raises(JobError) as caught:
        Job().replaced({key: value}, source="--set")
    assert str(caught.value).startswith("--set: ")
    assert words in str(caught.value)


def test_the_words_of_others_are_the_same_here() -> None:
    """`[observe]` says what the settings say, and the aggregators are those that the engine has."""
    from fedvitals.train.aggregate import AGGREGATORS as BUILT

    assert set(AGGREGATORS) == set(BUILT)
    for one in fields(SECTIONS["observe"]):  # type: ignore[arg-type]  # a dataclass
        assert one.default == BY_NAME[one.name].default
        assert one.metadata["key"].choices == BY_NAME[one.name].choices


def _values(default: object, limits: Key) -> st.SearchStrategy[Any]:
    if limits.built:
        return st.sampled_from(limits.built)
    if limits.choices:
        return st.sampled_from(limits.choices)
    if limits.names:
        return st.lists(st.integers(0, 999_999), max_size=4)
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, str):
        return st.text(max_size=10)
    whole = st.integers(int(limits.low or 1), int(limits.high or 1000))
    if isinstance(default, tuple):
        return st.lists(whole, min_size=1, max_size=4)
    if isinstance(default, int):
        return whole
    low = limits.low if limits.above is None else limits.above
    return st.floats(low, limits.high, exclude_min=limits.above is not None)


def _section(title: str) -> st.SearchStrategy[dict[str, Any]]:
    named = {one.name: _values(one.default, one.metadata["key"]) for one in fields(SECTIONS[title])}  # type: ignore[arg-type]  # a dataclass
    return st.fixed_dictionaries({}, optional=named)


FAULT = st.sampled_from([kind for kind, fault in BY_KIND.items() if not fault.on_server]).map(
    lambda kind: {"kind": kind, "share": 0.5, "from_round": 3, "until_round": 7}
)
JOBS = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**63 - 1),
        "faults": st.lists(FAULT, max_size=2, unique_by=lambda fault: fault["kind"]),
    },
).flatmap(lambda top: st.fixed_dictionaries({title: _section(title) for title in SECTIONS}).map(lambda s: {**top, **s}))


def _of_one_mode(server: dict[str, Any]) -> dict[str, Any]:
    """What belongs to the other mode, or goes with no memory, put right."""
    if server.get("mode") == "async":
        means = {"aggregator": "fedavg"} if server.get("remember") else {}
        return {"over_select": 1.0, "buffer": 7, "prune": 0.0, **means}
    return {
        "remember": False,
        "average": 0.0,
        "aggregator": "krum",
        "selection": "oort",
        "late": "drop",
        "prune_from": 0,
        "prune_until": 0,
    }


@given(JOBS)
def test_to_dict_round_trips(said: dict[str, Any]) -> None:
    """What `to_dict` writes is JSON, is complete, and reads back as the same job."""
    said["data"] = {**said["data"], "clients": 1_000_000, "partition": "iid"}
    said["execute"]["clock"] = "virtual"  # what is reckoned needs it
    said["model"]["kernel"] = said["model"].get("kernel", 5) | 1
    said["server"] |= _of_one_mode(said["server"])
    said["codec"]["adapt"] = said["codec"].get("adapt", False) and said["server"].get("deadline_s", 0.0) > 0.0
    job = Job.from_dict(said)
    text = json.dumps(job.to_dict(), allow_nan=False)
    assert Job.from_dict(json.loads(text)) == job
    assert json.dumps(Job.from_dict(json.loads(text)).to_dict()) == text


WORDS = st.sampled_from(["name", "seed", "data", "train", "faults", "clients", "lr", "kind", "source", "x"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, ANYTHING, max_size=4))
def test_any_rubbish_is_a_job_error_or_a_job(said: dict[str, Any]) -> None:
    """Nothing that a file could hold gets past the check, or out of it as another error."""
    try:
        job = Job.from_dict(said, source="rubbish")
    except JobError as error:
        refusal = str(error)
    else:
        refusal = "rubbish: none"
        assert Job.from_dict(job.to_dict()) == job
    assert refusal.startswith("rubbish: ")
