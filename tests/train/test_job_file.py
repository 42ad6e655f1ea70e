"""A job's file: what is written is what is read."""

from __future__ import annotations

import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fedvitals.train.job import Job
from fedvitals.train.job_file import job_file

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(
    source=TEXTS.map(lambda text: f"{text}.npz"),
    names=st.lists(TEXTS, max_size=3, unique=True),
    lr=st.floats(1e-12, 1e6),
    seed=st.integers(0, 2**63 - 1),
    hidden=st.lists(st.integers(1, 65_536), max_size=3),
    checkpoint=st.booleans(),
    share=st.none() | st.floats(1e-6, 1.0),
)
def test_any_job_comes_back(
    source: str, names: list[str], lr: float, seed: int, hidden: list[int], checkpoint: bool, share: float | None
) -> None:
    """Whatever its texts and numbers are."""
    job = Job.from_dict(
        {
            "seed": seed,
            "data": {"source": source, "partition": "natural", "clients": 0},
            "model": {"hidden": hidden},
            "train": {"lr": lr, "exclude": names, "checkpoint": checkpoint},
            "faults": [{"kind": "sign-flip", "from_round": 3} | ({"share": share} if share else {"clients": ["a"]})],
        }
    )
    assert Job.from_dict(tomllib.loads(job_file(job, "two\nlines"))) == job


def test_a_mark_at_the_beginning_is_no_error(tmp_path: Path) -> None:
    """Some editors put one before the text of a UTF-8 file."""
    path = tmp_path / "job.toml"
    path.write_text('name = "marked"\n', encoding="utf-8-sig")
    assert Job.load(path).name == "marked"


def test_defaults_are_left_out(tmp_path: Path) -> None:
    """A job that changes little is a short file, and its remark a comment."""
    path = tmp_path / "job.toml"
    job = Job().replaced({"train.batch_size": 8, "codec.up": "quantize:8"})
    path.write_text(job_file(job, "smaller"), encoding="utf-8")
    assert path.read_text(encoding="utf-8").splitlines() == [
        "# smaller",
        'name = "digits"',
        "seed = 42",
        "",
        "[train]",
        "batch_size = 8",
        "",
        "[codec]",
        'up = "quantize:8"',
    ]
    assert Job.load(path) == job
