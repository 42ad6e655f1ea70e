"""FL201, FL204: clients that compute or load far longer than their work takes elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from charted import Clock, diagnosed, found, looped, model, trained

from fedvitals.diagnose.timing.spent import expected
from fedvitals.run import Run
from fedvitals.vocabulary import Severity


def worked(
    compute: Callable[[int, int], float], load: Callable[[int, int], float] = lambda number, client: 0.0
) -> Callable[[Run, Clock], None]:
    """Eight clients over 16 rounds; each takes as long as the functions of round and client say."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(16):
            with run.round(number) as rnd:
                for client in range(8):
                    with rnd.client(client, samples=10 * (client + 1)) as c:
                        with c.phase("load"):
                            clock.go_on(load(number, client))
                        with c.phase("train"):
                            clock.go_on(compute(number, client))

    return loop


def noisy(number: int, client: int) -> float:
    """Proportional to the rows, give or take a third."""
    return (client + 1) * (1 + 0.3 * float(np.sin(37.0 * number + 11.0 * client)))


def test_a_straggler_is_slow_for_its_rows(tmp_path: Path) -> None:
    """From its round on, with the factor, the others' times, what it was before, and the rounds it held up."""
    chart = looped(
        tmp_path, worked(lambda number, client: noisy(number, client) * (4 if client == 6 and number > 5 else 1))
    )
    (one,) = found(chart, "FL201")
    assert (one.clients, one.rounds) == (("6",), tuple(range(6, 16)))
    assert one.evidence["factor"] == pytest.approx(4, rel=0.4)
    assert one.evidence["factor_before"] == pytest.approx(1, rel=0.4)
    assert (one.evidence["held_up"], one.evidence["late"]) == (10, 0)
    assert one.why.endswith("; it held up 10 rounds")


def _with_a_deadline(late_from: int) -> Callable[[Run, Clock], None]:
    """The same clients; the seventh is slow, and from some round on the server no longer waits for it."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(16):
            took = [noisy(number, client) * (4 if client == 6 else 1) for client in range(8)]
            began, last = clock.now, "late" if number >= late_from else "used"
            with run.round(number, model=model()) as rnd:
                clock.go_on(max(took))
                rnd.cohort(range(8), samples=[10 * (client + 1) for client in range(8)]).submit(
                    updates=torch.ones(8, 43),
                    phases_s={"train": took},
                    outcome=["used"] * 6 + [last, "used"],
                    attributed=0,
                    start_ns=began,
                    end_ns=[began + round(seconds * 1e9) for seconds in took],
                )

    return loop


@pytest.mark.parametrize(
    ("late_from", "held", "says", "do"),
    [
        (16, (16, 0), "; it held up 16 rounds", "let rounds go on without it"),
        (10, (10, 6), "; it held up 10 rounds, and 6 ended without it", "let rounds go on without it"),
        (0, (0, 16), "; 16 rounds ended without it", "let its work count"),
    ],
)
def test_rounds_that_end_without_a_straggler_are_not_held_up_by_it(
    tmp_path: Path, late_from: int, held: tuple[int, int], says: str, do: str
) -> None:
    """The finding tells those that waited from those that did not, and advises no deadline where there is one."""
    chart = looped(tmp_path, _with_a_deadline(late_from))
    (one,) = found(chart, "FL201")
    assert one.clients == ("6",)
    assert (one.evidence["held_up"], one.evidence["late"]) == held
    assert one.why.endswith(says)
    assert do in one.next[-1].text


ASYNC = {
    "server.mode": "async",
    "server.buffer": 4,
    "server.concurrency": 12,
    "execute.clock": "virtual",
    "network.profile": "lan",
    "data.clients": 30,
    "train.rounds": 150,
    "train.evaluate_every": 50,
    "data.source": "synthetic",
    "data.rows": 40,
}


def test_nobody_waits_for_a_straggler_without_rounds(tmp_path: Path) -> None:
    """It is told of, with how stale its updates came; no round was held up, and none had too few clients."""
    faults = [{"kind": "slow-compute", "clients": [3], "strength": 30.0}]
    chart = trained(tmp_path, {**ASYNC, "faults": faults})
    (one,) = found(chart, "FL201")
    assert (one.clients, one.severity) == (("3",), Severity.INFO)
    assert one.evidence["held_up"] == 0
    assert one.evidence["behind"] > 3
    assert "nobody waited for it; the model was" in one.why
    assert "pisces" in one.next[-1].text
    assert found(chart, "FL105", "FL202", "FL205", "FL108") == ()


def test_more_rows_make_no_straggler(tmp_path: Path) -> None:
    """Eight times the rows take eight times as long."""
    assert found(looped(tmp_path, worked(noisy)), "FL2") == ()


def test_a_bad_moment_makes_no_straggler(tmp_path: Path) -> None:
    """Twice ten times as long is the machine's doing."""
    chart = looped(
        tmp_path, worked(lambda number, client: noisy(number, client) * (10 if number == client and client < 2 else 1))
    )
    assert found(chart, "FL201") == ()


@pytest.mark.parametrize(
    ("executor", "at_times", "named"), [("processes", True, ()), ("processes", False, ("6",)), ("", True, ("6",))]
)
def test_a_machine_that_clients_share_is_busy_only_at_times(
    tmp_path: Path, executor: str, at_times: bool, named: tuple[str, ...]
) -> None:
    """Who is quick in every fourth round there is not slow by itself; on a machine of its own it would be."""
    slow = worked(
        lambda number, client: noisy(number, client) * (4 if client == 6 and (number % 4 or not at_times) else 1)
    )
    chart = looped(tmp_path, slow)
    environment = {**chart.run.environment, **({"executor": executor} if executor else {})}
    seen = replace(chart, run=replace(chart.run, environment=environment))
    assert tuple(name for one in found(seen, "FL201") for name in one.clients) == named


def test_one_client_alone_cannot_be_slow(tmp_path: Path) -> None:
    """There is nobody to compare it with."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(5):
            with run.round(number) as rnd, rnd.client("only"):
                clock.go_on(1.0)

    assert "FL201" in diagnosed(looped(tmp_path, loop), "FL201").not_observable


def test_a_client_that_waits_for_its_data(tmp_path: Path) -> None:
    """Loading is no slow computing: it has its own finding, with both times."""
    chart = looped(tmp_path, worked(noisy, lambda number, client: 12.0 if client == 1 and number > 3 else 0.1))
    (one,) = found(chart, "FL201", "FL204")
    assert (one.code, one.clients, min(one.rounds)) == ("FL204", ("1",), 4)
    assert one.evidence["load_s"] == pytest.approx(12.0)


def test_everybody_waits_for_data(tmp_path: Path) -> None:
    """Then it is the run's, and no client is named."""
    (one,) = found(looped(tmp_path, worked(noisy, lambda number, client: 30.0)), "FL204")
    assert one.clients == ()
    assert one.evidence["load_s"] > one.evidence["compute_s"]


def test_expected_times_are_not_set_by_the_slow() -> None:
    """With a constant, steps and rows at hand, the true weights come out although one in five is ten times slower."""
    generator = np.random.default_rng(2)
    steps = generator.integers(1, 40, 200).astype(float)
    work = np.stack([np.ones(200), steps, generator.integers(8, 900, 200).astype(float)], axis=1)
    took = 0.01 + 0.002 * steps
    slow = took * np.where(np.arange(200) % 5 == 0, 10, 1)
    np.testing.assert_allclose(expected(slow, work), took, rtol=0.05)


@pytest.mark.parametrize(("company", "named"), [(1, ()), (4, ("6",))])
def test_a_batch_of_its_own_is_as_noisy_as_a_client_alone(tmp_path: Path, company: int, named: tuple[str, ...]) -> None:
    """Who shares a batch with others is told from its noise even in milliseconds; who is a batch alone is not."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(16):
            with run.round(number, model=model()) as rnd:
                for clients in (range(7 - company), range(7 - company, 7)):
                    took = [(0.001 if client < 6 else 0.005) for client in clients]
                    clock.go_on(sum(took))
                    rnd.cohort(clients, samples=[20] * len(took)).submit(
                        updates=torch.ones(len(took), 43), phases_s={"train": took}, chunk=len(clients)
                    )

    assert tuple(name for one in found(looped(tmp_path, loop), "FL201") for name in one.clients) == named


def test_the_few_with_twice_the_steps_of_all_others_are_not_slow(tmp_path: Path) -> None:
    """Where nearly everybody has one batch, who has two takes twice as long, however busy the machine is."""

    def loop(run: Run, clock: Clock) -> None:
        random = np.random.default_rng(0)
        for number in range(16):
            busy = 10 ** float(random.uniform(-1, 1))
            with run.round(number, model=model()) as rnd:
                chosen = sorted(random.choice(30, 15, replace=False).tolist())
                steps = [10 if client < 4 else 5 for client in chosen]
                took = [0.0001 * busy * count for count in steps]
                clock.go_on(sum(took))
                rnd.cohort(chosen, samples=[2 * count for count in steps]).submit(
                    updates=torch.ones(15, 43), phases_s={"train": took}, steps=np.array(steps), epochs=np.full(15, 5)
                )

    assert found(looped(tmp_path, loop), "FL201") == ()


def test_what_most_have_to_do_does_not_hide_what_the_others_have() -> None:
    """The steps explain the time, though for nine of ten a constant would do."""
    steps = np.array([5.0] * 90 + [10.0] * 10)
    took = steps * np.exp(np.random.default_rng(0).normal(0, 0.5, 100))
    fitted = expected(took, np.stack([np.ones(100), steps], axis=1))
    assert fitted[-1] / fitted[0] == pytest.approx(2, rel=0.5)


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_that_was_interrupted_says_nothing_of_steps_and_rows(tmp_path: Path, seed: int) -> None:
    """Times are shares of the batch's, by steps: whatever its pace is, nobody in it is slow."""

    def loop(run: Run, clock: Clock) -> None:
        random = np.random.default_rng(seed)
        rows = 1 + (4 * random.pareto(1.0, 100)).astype(int).clip(0, 300)
        steps = -(-rows // 20)
        for number in range(12):
            with run.round(number, model=model()) as rnd:
                for chunk, part in enumerate((slice(0, 50), slice(50, 100))):
                    took = 1e-4 * np.exp(2.0 * random.normal()) * steps[part]
                    clock.go_on(float(took.sum()))
                    rnd.cohort(list(range(100))[part], samples=rows[part].tolist()).submit(
                        updates=torch.ones(50, 43), phases_s={"train": took}, steps=steps[part], chunk=chunk
                    )

    assert found(looped(tmp_path, loop), "FL201") == ()
