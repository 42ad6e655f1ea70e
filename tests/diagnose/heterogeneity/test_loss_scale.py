"""FL509: a client whose losses are sums where the others' are means, told as that and as nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from charted import Clock, found, looped, model, trained

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.loss_scale import loss_scales
from fedvitals.run import Run
from fedvitals.vocabulary import Severity

CLIENTS, ROUNDS, ROWS, BATCH = 8, 10, 96, 8
ODD = 5


def _loop(folder: Path, reported: float = 1.0, trained_by: float = 1.0, since: int = 0, rate: float = 0.1) -> Chart:
    """One client that reports, and trains by, so many times its mean loss, from a round on."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(2)
        net, centres = model(2), 2 * torch.randn(3, 4)
        labels = torch.randint(0, 3, (CLIENTS, ROWS))
        inputs = centres[labels] + torch.randn(CLIENTS, ROWS, 4)
        for number in range(ROUNDS):
            states = []
            with run.round(number, model=net) as rnd:
                for client in range(CLIENTS):
                    odd = client == ODD and number >= since
                    local = model()
                    local.load_state_dict(net.state_dict())
                    optimizer = torch.optim.SGD(local.parameters(), lr=rate)
                    with rnd.client(client, samples=ROWS) as c:
                        c.watch(local)
                        for rows in c.batches(torch.split(torch.randperm(ROWS), BATCH)):
                            loss = torch.nn.functional.cross_entropy(local(inputs[client, rows]), labels[client, rows])
                            optimizer.zero_grad()
                            (loss * (trained_by if odd else 1.0)).backward()  # type: ignore[no-untyped-call]
                            optimizer.step()
                            c.step(loss.item() * (reported if odd else 1.0))
                        c.submit(local.state_dict())
                    states.append(local.state_dict())
            net.load_state_dict({name: sum(one[name] for one in states) / CLIENTS for name in states[0]})

    return looped(folder, loop)


@pytest.mark.parametrize(("factor", "over"), [(BATCH, "batch"), (ROWS, "rows")])
def test_a_sum_that_is_only_reported(tmp_path: Path, factor: int, over: str) -> None:
    """It is told, no alarm, and nobody is accused of other labels for it."""
    chart = _loop(tmp_path, reported=factor)
    (one,) = found(chart, "FL5", "FL6")
    assert (one.code, one.severity, one.clients) == ("FL509", Severity.INFO, (str(ODD),))
    assert one.evidence[str(ODD)]["summed_over"] == over
    assert one.evidence[str(ODD)]["factor"] == pytest.approx(factor, rel=0.3)
    assert one.rounds == tuple(range(ROUNDS))


def test_a_sum_that_is_trained_by(tmp_path: Path) -> None:
    """An alarm of its own, under which what else it leaves behind stands."""
    told = found(_loop(tmp_path, reported=BATCH, trained_by=BATCH, rate=0.01), "FL412", "FL5", "FL6")
    (one,) = [one for one in told if str(ODD) in one.clients]
    assert (one.code, one.severity, one.clients) == ("FL509", Severity.WARNING, (str(ODD),))
    assert "trains by a loss on another scale" in one.why


@pytest.mark.parametrize(("reported", "since"), [(1.0, 0), (3.0, 0), (20.0, 0), (BATCH, 5)])
def test_other_losses_are_as_they_are(tmp_path: Path, reported: float, since: int) -> None:
    """None at all, a number that is too small or that nothing was summed over, and a loss that rose in the middle."""
    assert loss_scales(_loop(tmp_path, reported=reported, since=since)) == ()


@pytest.mark.parametrize("kind", ["label-flip", "unnormalised-input", "scaled-update", "label-noise"])
def test_faults_are_no_matter_of_scale(tmp_path: Path, kind: str) -> None:
    """From the first round on, too."""
    assert found(trained(tmp_path, faults=[{"kind": kind, "clients": [3, 7]}]), "FL509") == ()


def test_nobody_to_be_compared_with(tmp_path: Path) -> None:
    """All clients of the round under one id, some of them with far higher losses: nothing is known of others."""

    def loop(run: Run, clock: Clock) -> None:
        with run.round(0, model=model()) as rnd:
            for place in range(9):
                with rnd.client("all", samples=8) as c:
                    c.submit(
                        {name: value + 0.1 for name, value in model().state_dict().items()}, loss=8.0 ** (place < 3)
                    )

    assert loss_scales(looped(tmp_path, loop)) == ()
