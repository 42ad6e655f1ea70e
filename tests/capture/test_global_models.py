"""The global model, round by round: statistics, drift, fingerprints and blobs; and trainings without rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import Tensor, nn
from watching import by_client, flat, moved, read, small_model, started

from fedvitals.vocabulary import STATISTICS


def norm(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values))


def test_every_model_is_described_from_the_first_to_the_last() -> None:
    """Its statistics, its fingerprint, and its drift from the first and from the one before; the outcome too."""
    states = [moved(small_model(), seed=seed) for seed in range(4)]
    model = small_model()
    with started() as run:
        for number, state in enumerate(states[:3]):
            model.load_state_dict(state)
            with run.round(number, model=model):
                pass
        model.load_state_dict(states[3])
    rows = [flat(state) for state in states]
    with read() as reader:
        blocks, rounds, layers = reader.model_blocks(), reader.rounds(), reader.layouts()[0].layers
    assert [(block.version, block.round) for block in blocks] == [(0, 0), (1, 1), (2, 2), (3, -1)]
    assert [one.fingerprint for one in rounds] == [block.fingerprint for block in blocks[:3]]
    assert len({block.fingerprint for block in blocks}) == 4
    drifts = [(norm(row - rows[0]), norm(row - rows[max(i - 1, 0)])) for i, row in enumerate(rows)]
    assert [block.drift_first for block in blocks] == pytest.approx([first for first, _ in drifts], rel=1e-5)
    assert [block.drift_last for block in blocks] == pytest.approx([last for _, last in drifts], rel=1e-5)
    for block, state in zip(blocks, states, strict=True):
        assert block.stats.shape == (len(layers), len(STATISTICS))
        np.testing.assert_allclose(block.stats[:, 0], [norm(state[layer.name]) for layer in layers], rtol=1e-5)
        assert block.nonfinite is None


def test_a_model_that_did_not_change_is_described_once() -> None:
    """The end of a run that left the model as the last round found it adds nothing."""
    model = small_model()
    with started() as run, run.round(0, model=model):
        pass
    with read() as reader:
        assert len(reader.model_blocks()) == 1


def test_a_model_that_went_bad_is_seen() -> None:
    """Values that are not finite are counted layer by layer."""
    model = small_model()
    model.get_parameter("2.bias").data[1] = float("nan")
    with started() as run, run.round(0, model=model):
        pass
    with read() as reader:
        (block,) = reader.model_blocks()
    assert block.nonfinite is not None
    assert block.nonfinite.tolist() == [0, 0, 0, 1]


def test_the_model_a_round_began_with_is_what_counts() -> None:
    """Changing it inside the round does not change what clients are judged against."""
    model = small_model()
    with started() as run, run.round(0, model=model) as rnd:
        with torch.no_grad():
            model.get_parameter("0.weight").fill_(100.0)
        with rnd.client(1) as c:
            c.submit(small_model())
    assert by_client()["1"].update_norm == 0.0


def test_equal_models_have_equal_fingerprints_however_they_are_handed_over() -> None:
    """Server and client can tell that they hold the same model; a changed value changes it."""
    model = small_model()
    forms: list[Any] = [model, model.state_dict(), [t.numpy() for t in model.state_dict().values()]]
    changed = small_model()
    changed.get_parameter("2.bias").data[0] += 1e-6
    with started() as run:
        for number, form in enumerate([*forms, changed]):
            with run.round(number, model=form) as rnd, rnd.client(number) as c:
                c.watch(small_model())
    with read() as reader:
        found = [one.fingerprint for one in reader.rounds()]
    assert found[0] == found[1] == found[2] != found[3]
    assert {one.received for one in by_client().values()} == {found[0]}


def test_fingerprints_of_big_layers_see_a_changed_layer() -> None:
    """Of a big layer some thousands of values are looked at; a trained one differs in all."""
    model = nn.Linear(300, 100)
    with started(keep_models=False) as run:
        for number in range(2):
            with run.round(number, model=model):
                pass
            with torch.no_grad():
                model.weight += 1e-3
    with read() as reader:
        assert len({one.fingerprint for one in reader.rounds()}) == 2


class Mixed(nn.Module):
    """Floats of several kinds, integers, and a scalar."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(3, 2, generator=generator))
        self.narrow = nn.Parameter(torch.randn(4, generator=generator).half())
        self.brain = nn.Parameter(torch.randn(4, generator=generator).bfloat16())
        self.scalar = nn.Parameter(torch.tensor(0.5))
        self.register_buffer("count", torch.tensor(seed))
        self.register_buffer("mask", torch.tensor([True, False]))


KEPT: dict[str, Callable[[int], nn.Module]] = {
    "plain": small_model,
    "mixed": Mixed,
    "counted": lambda _: nn.BatchNorm1d(3),
    "list": small_model,
}


@pytest.mark.parametrize("kind", KEPT)
def test_kept_models_are_the_models(kind: str) -> None:
    """One a round, as safetensors that anybody can read, in the model's own types."""
    models: list[nn.Module] = [KEPT[kind](i) for i in range(2)]
    with started() as run:
        for number, model in enumerate(models):
            tensors = [*model.state_dict().values(), torch.arange(3)]
            with run.round(number, model=tensors if kind == "list" else model):
                pass
    with read() as reader:
        blobs = [blob for blob in reader.blobs() if blob.kind == "model"]
        assert [(blob.version, blob.round) for blob in blobs] == [(0, 0), (1, 1)]
        for blob, model in zip(blobs, models, strict=True):
            kept = load(reader.blob(blob.name))
            state = dict(model.state_dict())
            if kind == "list":
                state = {f"array.{i}": t for i, t in enumerate([*state.values(), torch.arange(3)])}
            assert set(kept) == set(state)
            for name, tensor in state.items():
                assert kept[name].dtype == tensor.dtype
                assert torch.equal(kept[name], tensor)


def test_models_are_kept_only_when_wanted() -> None:
    """`keep_models = false` keeps their statistics alone."""
    with started(keep_models=False) as run, run.round(0, model=small_model()):
        pass
    with read() as reader:
        assert reader.blobs() == []
        assert len(reader.model_blocks()) == 1


# -- trainings without rounds


def test_a_late_client_is_judged_against_the_version_it_received() -> None:
    """Base version, staleness when it arrives, and the version its update went into."""
    models = [small_model(seed) for seed in range(4)]
    with started() as run:
        versions = [run.version(model) for model in models[:3]]
        assert versions == [0, 1, 2]
        for client, base in (("fresh", 2), ("late", 0), ("latest", None)):
            with run.client(client, base=base, samples=5) as c:
                c.submit(models[3], loss=0.5)
    found = by_client()
    target = flat(models[3].state_dict())
    for client, base in (("fresh", 2), ("late", 0), ("latest", 2)):
        one = found[client]
        assert (one.base_version, one.staleness, one.applied_version) == (base, 2 - base, 3)
        assert one.update_norm == pytest.approx(norm(target - flat(models[base].state_dict())), rel=1e-5)
        assert (one.samples, one.loss, one.outcome) == (5, 0.5, "used")
        assert one.raw_bytes_down == one.raw_bytes_up == 4 * 43


def test_staleness_counts_what_was_applied_while_it_trained() -> None:
    """A client that begins fresh may arrive stale."""
    with started() as run:
        base = run.version(small_model())
        with run.client("slow", base=base) as c:
            for seed in (1, 2, 3):
                run.version(small_model(seed))
            c.submit(small_model(9))
            run.version(small_model(4))
        with run.client("silent", base=base):
            pass
    found = by_client()
    assert (found["slow"].base_version, found["slow"].staleness, found["slow"].applied_version) == (0, 3, 4)
    assert (found["silent"].staleness, found["silent"].applied_version) == (4, 5)


def test_a_round_that_only_holds_an_evaluation_is_no_version() -> None:
    """It is about the latest model: an update one model behind is one behind, and goes into the next one."""
    with started() as run:
        base = version = run.version(small_model())
        for number in range(3):
            base, version = version, run.version(small_model(number + 1))
            with run.round(number) as rnd:
                rnd.evaluated(loss=0.5)
        with run.client("slow", base=base) as c:
            c.submit(small_model(9))
    one = by_client()["slow"]
    assert (version, one.base_version, one.staleness, one.applied_version) == (3, 2, 1, 4)
    with read() as reader:
        assert [(found.number, found.version) for found in reader.rounds()] == [(0, 1), (1, 2), (2, 3)]
        assert [found.round for found in reader.evaluations()] == [0, 1, 2]


def test_many_asynchronous_clients_at_once() -> None:
    """Sessions that overlap each keep their own base."""
    models = [small_model(seed) for seed in range(3)]
    with started() as run:
        sessions = []
        for model in models:
            version = run.version(model)
            sessions.append(run.client(f"of {version}", base=version).__enter__())
        for session in reversed(sessions):
            session.submit(models[0])
            session.__exit__(None, None, None)
    found = by_client()
    assert [found[f"of {i}"].staleness for i in range(3)] == [2, 1, 0]
    norms = [norm(flat(models[0].state_dict()) - flat(model.state_dict())) for model in models]
    assert [found[f"of {i}"].update_norm for i in range(3)] == pytest.approx(norms, rel=1e-5)


def test_a_version_that_is_gone_costs_the_statistics_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many are remembered; staleness is known all the same."""
    monkeypatch.setattr("fedvitals.capture.models.MOST_RECENT", 2)
    with started() as run:
        for seed in range(4):
            run.version(small_model(seed))
        with run.client("late", base=0) as c:
            c.submit(small_model(9))
        with run.client("watched", base=0) as c:
            c.watch(small_model(0))
            c.submit(small_model(9))
    found = by_client()
    assert (found["late"].staleness, found["late"].update_norm) == (3, None)
    assert (found["watched"].staleness, found["watched"].base_version) == (3, 0)
    assert (found["watched"].update_norm or 0) > 0


@pytest.mark.parametrize("level", ["summary", "sealed"])
def test_of_a_late_update_that_cannot_be_judged_bad_values_are_counted(
    level: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And one warning a run says that it is not judged; a sealed run keeps nothing of it."""
    monkeypatch.setattr("fedvitals.capture.models.MOST_RECENT", 1)
    model = small_model(9)
    model.get_parameter("2.bias").data[:2] = torch.tensor([torch.nan, torch.inf])
    with started(level=level) as run:
        for seed in range(2):
            run.version(small_model(seed))
        for client, state in (("bad", model), ("good", small_model(8)), ("odd", model.state_dict())):
            with run.client(client, base=0) as c:
                c.submit(state, loss=0.5)
        with run.client("fresh") as c:
            c.submit(small_model(3))
    found = by_client()
    counted = {"bad": 2, "good": 0, "odd": 2} if level == "summary" else dict.fromkeys(("bad", "good", "odd"))
    assert {name: found[name].nonfinite for name in counted} == counted
    unjudged = [found[name] for name in counted]
    assert {(one.update_norm, one.cosine, one.staleness) for one in unjudged} == {(None, None, 1)}
    (told,) = [record.getMessage() for record in caplog.records]
    assert "version 0 of the model" in told


def test_bad_values_are_counted_in_rounds_without_a_model_where_others_have_one() -> None:
    """A round that is given none cannot judge its updates; the damage is seen all the same."""
    model = small_model(9)
    model.get_parameter("2.bias").data[0] = torch.nan
    with started() as run:
        with run.round(0, model=small_model()):
            pass
        with run.round(1) as rnd, rnd.client("bad") as c:
            c.submit(model)
            rnd.rejected(["bad"])
    assert (by_client()["bad"].nonfinite, by_client()["bad"].outcome) == (1, "rejected")


def test_without_any_version_a_client_is_recorded_all_the_same() -> None:
    """A loop that hands no model over."""
    with started() as run, run.client(1) as c:
        c.submit(small_model(), loss=0.5)
    one = by_client()["1"]
    assert (one.base_version, one.update_norm, one.loss, one.round) == (-1, None, 0.5, -1)


def test_updates_that_nobody_can_judge_are_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """One warning a run says what is missing; none where a model could not be read, which was said already."""
    for model in (None, {"w": torch.zeros(2, device="meta")}):
        caplog.clear()
        with started() as run:
            for number in range(2):
                with run.round(number, model=model) as rnd, rnd.client(1) as c:
                    c.submit(small_model(), loss=0.5)
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == 1
        assert ("run.round(number, model=global_model) gives one" in told[0]) is (model is None)


def test_rounds_and_versions_count_together() -> None:
    """A round's model is a version like any other."""
    with started() as run:
        with run.round(7, model=small_model()):
            pass
        assert run.version(small_model(1)) == 1
        with run.client(1, base=0) as c:
            c.submit(small_model(2))
    one = by_client()["1"]
    assert (one.round, one.base_version, one.staleness) == (7, 0, 1)


def test_two_kilobytes_a_participation_with_twenty_layers() -> None:
    """All that is always kept of a client: statistics, sketches, losses and its row, on disk."""
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(9)), nn.Linear(32, 64))
    state = dict(model.state_dict())
    assert len(state) == 20
    rounds, clients = 4, 64
    with started(keep_models=False, name="empty") as run:
        for number in range(rounds):
            with run.round(number, model=model):
                pass
    with started(keep_models=False, name="full") as run:
        for number in range(rounds):
            with run.round(number, model=model) as rnd:
                for client in range(clients):
                    with rnd.client(client, samples=100) as c:
                        for step in range(20):
                            c.step(1.0 / (step + 1))
                        c.submit(moved(model, seed=client), accuracy=0.5)
    with read("empty") as empty, read("full") as full:
        assert len(full.participations()) == rounds * clients
        assert all(one.block is not None for one in full.participations())
        each = (full.size_bytes() - empty.size_bytes()) / (rounds * clients)
    assert each <= 2048
