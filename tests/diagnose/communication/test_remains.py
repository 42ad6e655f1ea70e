"""FL304: what error feedback keeps, and whether it is ever sent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from charted import Clock, diagnosed, found, looped, model

from fedvitals.diagnose import diagnose
from fedvitals.run import Run
from fedvitals.settings import Settings
from fedvitals.store import open_store
from fedvitals.train.engine import train
from fedvitals.train.job import Job
from fedvitals.vocabulary import Severity


def owing(remains: Callable[[int, int], float | None]) -> Callable[[Run, Clock], None]:
    """Eight clients over twelve rounds; what each still owes after each."""

    def loop(run: Run, clock: Clock) -> None:
        start = model()
        for number in range(12):
            with run.round(number, model=start) as rnd:
                for client in range(8):
                    with rnd.client(client) as c:
                        clock.go_on(1.0)
                        owed = remains(number, client)
                        state = {name: tensor + 0.1 for name, tensor in start.state_dict().items()}
                        if owed is None:
                            c.submit(state)
                        else:
                            c.submit(state, residual_norm=owed)

    return loop


def test_remains_that_are_never_sent(tmp_path: Path) -> None:
    """They grow from round to round in everybody, far beyond an update."""
    (one,) = found(looped(tmp_path, owing(lambda n, c: (n + 1.0) * (5 + c))), "FL304")
    assert (one.severity, one.clients) == (Severity.WARNING, ())
    assert (one.evidence["clients"], one.evidence["growing"]) == (8, 8)
    assert one.evidence["grew"] == pytest.approx(10.0 / 5.0, rel=0.2)


@pytest.mark.parametrize(
    "remains",
    [
        lambda n, c: 9.0 * min(n + 1, 3),  # grown at first, and then level
        lambda n, c: 9.0 + (n * 7 + c * 5) % 4,  # up and down
        lambda n, c: 9.0 * (n + 1) if c == 2 else 9.0,  # one client is not the codec
        lambda n, c: 1e-6 * (n + 1.0),  # grows, and is nothing
        lambda n, c: 100.0 / (n + 1),
    ],
)
def test_remains_that_are_in_order(remains: Callable[[int, int], float], tmp_path: Path) -> None:
    """Nothing to say, and nothing missing."""
    result = diagnosed(looped(tmp_path, owing(remains)), "FL304")
    assert result.findings == ()
    assert "FL304" not in result.not_observable


def test_runs_without_feedback(tmp_path: Path) -> None:
    """Cannot be judged, which is said."""
    assert "FL304" in diagnosed(looped(tmp_path, owing(lambda n, c: None)), "FL304").not_observable


def test_the_engine_records_what_is_owed(tmp_path: Path) -> None:
    """A job with feedback whose codec keeps up is in order; the rule has something to look at."""
    job = Job.from_dict({"data": {"source": "digits", "clients": 5}, "train": {"rounds": 12}})
    train(job.replaced({"codec.up": "feedback(topk:0.2 | quantize:8)"}), settings=Settings(dir=str(tmp_path)))
    with closing(open_store(Settings(dir=str(tmp_path))).open("last")) as reader:
        result = diagnose(reader, select=["FL304"])
    assert result.findings == ()
    assert not result.not_observable
