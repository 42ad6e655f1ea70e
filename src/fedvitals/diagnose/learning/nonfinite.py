"""Non-finite values.

Sees: NaN or infinity in a loss, a gradient, an update or the global model. It goes back to the first: a client whose
update or loss is not finite although the model it received was. Its layers come from the update, its step from the
losses or gradients of its training, as an exact step or as the bracket between the last good and the first bad sample.

Matters: one NaN in one update makes the averaged model NaN, and from the next round on everybody's loss and every
evaluation with it. Nothing after that means anything.

Evidence: the first round, the client, the step or its bracket, the layers, how many values, and whether the global
model was lost by it. Clients that only received a model that was broken already, or thrown so far off that trainings
overflow (ten times the loss that the run began with), are counted, not accused.

False alarms: none; the values were there. When half of a cohort or more breaks in the same round on a finite model,
nobody is accused: what they share (learning rate, loss, precision) is at fault.

Do: look at that client's rows and loss for a division by zero, a logarithm of zero, a NaN in the input. Until then keep
it out, or aggregate by a rule that ignores non-finite updates.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import spoilt
from fedvitals.diagnose.evidence.accusing import SCORED_CODES
from fedvitals.diagnose.learning.curves import evaluated
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.words import listed, ranges
from fedvitals.diagnose.writing import write
from fedvitals.store.table import Bools, Ints
from fedvitals.vocabulary import Action, Finding, Grade, Severity

MOST_APART = 20  # culprits up to which each has a finding of its own


@dataclass(frozen=True, slots=True, eq=False)
class _Broken:
    """What is not finite: participations, which of them broke on a good model, versions and the rounds they begin."""

    rows: Bools
    own: Bools
    versions: dict[int, int]  # of the global model -> its round, -1 after the last

    @property
    def lost_round(self) -> int | None:
        """The first round whose model is not finite; the one after the last known is told by -1 and comes last."""
        rounds = list(self.versions.values())
        return min((one for one in rounds if one >= 0), default=-1 if rounds else None)


def _look(chart: Chart) -> Iterator[Finding]:
    if not len(chart.participations) and not chart.models and not chart.evaluations:
        raise CannotSee("the run has no participations, no models and no evaluations")
    broken = _broken(chart)
    culprits = np.unique(chart.participations.client[broken.own])
    everybody = _rounds_of_everybody(chart, broken.own)
    if everybody:
        yield _of_all(chart, broken, everybody)
    elif len(culprits) > MOST_APART:
        yield _of_clients(chart, broken, culprits)
    else:
        for client in culprits:
            yield _of_clients(chart, broken, culprits[culprits == client])
    if not broken.own.any():
        yield from _of_nobody(chart, broken)


def _broken(chart: Chart) -> _Broken:
    table = chart.participations
    bad = (table.nonfinite > 0) | np.isinf(table.update_norm) | ~np.isnan(table.bad_step)
    bad |= np.isinf(table.loss) | np.isinf(table.last_loss) | np.isinf(table.first_loss)
    versions = {one.version: one.round for one in chart.models if _is_broken_model(one.stats, one.nonfinite)}
    return _Broken(bad, bad & ~_received_broken(chart, bad, versions), versions)


def _is_broken_model(stats: np.ndarray, nonfinite: np.ndarray | None) -> bool:
    return bool((nonfinite is not None and nonfinite.any()) or not np.isfinite(stats[:, 0]).all())


def _received_broken(chart: Chart, bad: Bools, versions: dict[int, int]) -> Bools:
    """Who got a model that was broken already, or so far off that trainings overflow. Where no model was recorded:
    whoever is in a later round than the first bad update that was used, if most of that round is bad."""
    table, lost = chart.participations, chart.shared(spoilt)
    if chart.models:
        return np.asarray(lost | np.isin(table.base_version, list(versions)))
    lost = lost.copy()
    seen = False
    for _, rows in chart.cohorts:
        lost[rows] |= seen and bad[rows].mean() > 0.5
        seen = seen or bool((bad[rows] & (table.outcome[rows] == "used")).any())
    return lost


def _rounds_of_everybody(chart: Chart, own: Bools) -> list[int]:
    """Rounds in which at least half of a cohort of two or more broke on its own."""
    return [number for number, rows in chart.cohorts if len(rows) > 1 and 2 * own[rows].sum() >= len(rows)]


def _of_clients(chart: Chart, broken: _Broken, clients: Ints) -> Finding:
    table = chart.participations
    rows = np.flatnonzero(broken.own & np.isin(table.client, clients))
    first = int(rows[np.argmin(table.round[rows])])
    layers = _layers(chart, rows)
    lost = _lost_after(broken, int(table.round[first]))
    names = chart.names(clients)
    who = f"client {names[0]}" if len(names) == 1 else f"{len(names)} clients ({listed(names)})"
    why = f"{who} {_what(chart, first, layers)} in round {table.round[first]}, on a model that was finite"
    if len(set(table.round[rows].tolist())) > 1:
        why += f"; so in rounds {ranges(table.round[rows].tolist())}"
    return write(
        RULE,
        Severity.CRITICAL if lost is not None else Severity.WARNING,
        why + _aftermath(chart, broken, lost),
        grade=Grade.CERTAIN,
        rounds=table.round[rows],
        clients=names,
        layers=layers,
        evidence={**_evidence(chart, broken, first), "layers": list(layers), "model_lost_in_round": lost},
        next=_actions(names[0], int(table.round[first])),
    )


def _of_all(chart: Chart, broken: _Broken, rounds: list[int]) -> Finding:
    table = chart.participations
    rows = np.flatnonzero(broken.own & (table.round >= rounds[0]))
    first = int(rows[np.argmin(table.round[rows])])
    count, of = int(broken.own[table.round == rounds[0]].sum()), int((table.round == rounds[0]).sum())
    layers = _layers(chart, rows)
    lost = _lost_after(broken, rounds[0])
    why = (
        f"{count} of {of} clients broke in round {rounds[0]} on a model that was finite, so it is in what they share: "
    )
    why += f"client {chart.clients[table.client[first]]} {_what(chart, first, layers)}"
    return write(
        RULE,
        Severity.CRITICAL,
        why + _aftermath(chart, broken, lost),
        grade=Grade.CERTAIN,
        rounds=table.round[rows],
        layers=layers,
        evidence={**_evidence(chart, broken, first), "clients": count, "of": of, "layers": list(layers)},
        next=(
            Action(f"fedvitals show RUN --round {rounds[0]}"),
            Action("lower the learning rate, or clip gradients (train.clip = 1.0)", safe=False),
        ),
    )


def _of_nobody(chart: Chart, broken: _Broken) -> Iterator[Finding]:
    """The model or its evaluation is not finite, and no client's update was seen to be."""
    judged = evaluated(chart)
    rounds = judged.rounds[~np.isfinite(judged.values)]
    if broken.versions:
        after = "after the last round" if broken.lost_round == -1 else f"at the start of round {broken.lost_round}"
        why = f"the global model is not finite {after}, though no client's update was seen to be non-finite"
    elif len(rounds):
        why = f"the evaluation's loss is not finite in round {rounds[0]}, though the model and every update were"
    else:
        return
    yield write(
        RULE,
        Severity.CRITICAL,
        why + ": look at the aggregation and at the evaluation itself",
        grade=Grade.CERTAIN,
        rounds=[one for one in broken.versions.values() if one >= 0] or rounds,
        evidence={"model_versions": sorted(broken.versions), "evaluation_rounds": rounds.tolist()},
        next=(Action("check the server's aggregation, its learning rate and the test rows for non-finite values"),),
    )


def _layers(chart: Chart, rows: Ints) -> tuple[str, ...]:
    updates = chart.updates
    if updates is None:
        return ()
    hit = np.asarray((updates.nonfinite[rows] > 0).any(axis=0))
    return tuple(layer.name for layer, bad in zip(updates.layout.layers, hit, strict=True) if bad)


def _what(chart: Chart, row: int, layers: tuple[str, ...]) -> str:
    """What was seen to break first in this participation."""
    table = chart.participations
    count = table.nonfinite[row]
    where = f" in {listed(layers)}" if layers else ""
    sent = f"sent {count:.0f} non-finite value{'' if count == 1 else 's'}{where}" if count > 0 else ""
    step, good = table.bad_step[row], table.good_step[row]
    if not np.isnan(step):
        when = f"at step {step:.0f}" if np.isnan(good) else f"between steps {good:.0f} and {step:.0f}"
        return f"{sent or 'broke'}; its training broke {when}"
    losses = np.array([table.loss[row], table.first_loss[row], table.last_loss[row]])
    if np.isinf(losses).any():
        return f"{sent}{' and ' if sent else ''}reported a loss that is not finite"
    sent = sent or "sent an update too long for a number"
    return f"{sent} while every loss it reported was finite" if np.isfinite(losses).any() else sent


def _lost_after(broken: _Broken, number: int) -> int | None:
    """The round from which on the model is lost, when that is because of this round; -1: after the last."""
    later = [one for one in broken.versions.values() if one > number or one == -1]
    return min(later, key=lambda one: (one == -1, one)) if later else None


def _aftermath(chart: Chart, broken: _Broken, lost: int | None) -> str:
    if lost is None:
        return "; the global model stayed finite"
    after = "after the last round" if lost == -1 else f"from round {lost} on"
    others = int((broken.rows & ~broken.own).sum())
    symptoms = f", and {others} later participations only received it" if others else ""
    return f"; the global model is not finite {after}{symptoms}"


def _evidence(chart: Chart, broken: _Broken, first: int) -> dict[str, object]:
    table = chart.participations

    def whole(value: float) -> int | None:
        return None if np.isnan(value) else int(value)

    return {
        "first_round": int(table.round[first]),
        "first_client": chart.clients[table.client[first]],
        "bad_step": whole(table.bad_step[first]),
        "good_step": whole(table.good_step[first]),
        "values": whole(table.nonfinite[first]),
        "received_broken": int((broken.rows & ~broken.own).sum()),
    }


def _actions(client: str, number: int) -> tuple[Action, ...]:
    return (
        Action(f"check client {client}'s rows and loss for NaN, division by zero and overflow"),
        Action(f"fedvitals show RUN --round {number}"),
        Action('aggregator = "trimmed-mean", which leaves non-finite values out', safe=False),
    )


RULE = WrittenRule(
    code="FL405",
    name="non-finite values",
    page=__doc__ or "",
    look=_look,
    explains=frozenset(
        {"FL402", "FL403", "FL404", "FL406", "FL407", "FL409", "FL410", "FL411", "FL412", "FL503", "FL504"}
    )
    | SCORED_CODES,
)
