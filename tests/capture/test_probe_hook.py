"""The hook that watching puts on all optimizers: there once, and gone with the run."""

from __future__ import annotations

import torch
from watching import hooks, small_model, started


def test_the_hook_is_put_in_once_and_goes_with_the_run() -> None:
    """Between two clients it stays; two runs at once have one, until the second is over."""
    with started() as run:
        for client in range(2):
            with run.round(client, model=small_model()) as rnd, rnd.client(client) as c:
                c.watch(small_model())
            assert hooks() == 1
        with started() as other, other.round(0, model=small_model()) as rnd, rnd.client(0) as c:
            c.watch(small_model())
            assert hooks() == 1
        assert hooks() == 1
    assert hooks() == 0


def test_who_watches_after_the_run_leaves_no_hook() -> None:
    """A client that outlives its run, in a thread say, may still begin to watch."""
    model = small_model()
    with started() as run, run.round(0, model=model) as rnd, rnd.client("1") as late:
        run.close()
        late.watch(model)
    assert hooks() == 0


def test_a_session_that_nobody_ends_leaves_no_hook_behind_its_run() -> None:
    """A loop that enters a client without `with` and forgets it; ending it later changes nothing either."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with started() as run, run.round(0, model=model) as rnd:
        client = rnd.client("1").__enter__()
        client.watch(model)
        assert hooks() == 1
    assert hooks() == 0
    optimizer.step()
    client.__exit__(None, None, None)
    with started() as other, other.round(0, model=model) as rnd, rnd.client("1") as client:
        client.watch(model)
        assert hooks() == 1
    assert hooks() == 0
