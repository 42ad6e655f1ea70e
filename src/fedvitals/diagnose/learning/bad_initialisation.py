"""Bad initialisation.

Sees: the first global model. A matrix before the last that is zero or constant, so that its units stay copies of each
other; weights whose scale is far from one over the square root of their inputs, together with what comes of it: a loss
on receipt far above that of guessing, or one that does not move; a first model whose matrices do not move at all in the
first round.

Matters: what the first model lacks, training does not bring: dead or identical units stay so, saturated ones hardly
move.

Evidence: for each such layer its standard deviation times the square root of its inputs (about 0.6 for torch's default,
1 for LeCun's, 1.4 for He's), the loss of the first model, that of guessing.

False alarms: a model that goes on from an earlier training is judged alike: its loss is not far above guessing. A zero
last matrix, or a model of one matrix, is healthy and left out. A scale that does no harm (normalisation layers repair
it) is not reported.

Do: the framework's default initialisation, He's for ReLU, Glorot's for tanh; check that no code overwrites it.

Papers: Glorot and Bengio 2010, Understanding the difficulty of training deep feedforward neural networks; He et al.
2015 (arXiv:1502.01852).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import MAX, MIN, NORM, STD, Chart
from fedvitals.diagnose.cohorts import received_losses
from fedvitals.diagnose.guessing import chance
from fedvitals.diagnose.learning.curves import evaluated
from fedvitals.diagnose.learning.depths import fan_in, matrices
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.rule import Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import short, write
from fedvitals.vocabulary import Action, Finding, Grade, Layer, ModelBlock, Severity

SMALLEST, LARGEST = 0.02, 2.0  # standard deviation times root of the fan-in; known schemes lie between 0.1 and 1.5
FAR_ABOVE = 2.0  # times the loss of guessing
UNMOVED = 0.01  # of the first loss, over the rounds that there are
LEAST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class _Fault:
    kind: str
    layers: tuple[str, ...]
    what: str
    scales: dict[str, float]


def _look(chart: Chart) -> Iterator[Finding]:
    first = min(chart.models, key=lambda one: one.version)
    layout = next((one for one in chart.layouts if one.id == first.layout), None)
    chosen = matrices(layout) if layout is not None else []
    if layout is None or not chosen or not np.isfinite(first.stats[:, NORM]).all():
        return  # what is not finite is another rule's
    scales = {
        layout.layers[number].name: float(first.stats[number, STD]) * fan_in(layout.layers[number]) ** 0.5
        for number in chosen
    }
    began = _first_loss(chart)
    for fault in (_alike(first, layout.layers, chosen, scales), _scaled(chart, scales, began), _dead(chart, scales)):
        if fault is not None:
            yield _found(fault, began, chance(chart))
            return


def _first_loss(chart: Chart) -> float:
    """Of the first model, on the rows of those who received it."""
    table = chart.participations
    if not len(table):
        return float("nan")
    return median(received_losses(chart)[table.base_version == table.base_version.min()])


def _alike(first: ModelBlock, layers: tuple[Layer, ...], chosen: list[int], scales: dict[str, float]) -> _Fault | None:
    """Matrices before the last whose values are all the same."""
    size = first.stats[:, NORM] / np.sqrt([max(layer.size, 1) for layer in layers])
    same = [number for number in chosen[:-1] if first.stats[number, MIN] == first.stats[number, MAX]]
    if not same:
        return None
    names = tuple(layers[number].name for number in same)
    zero = all(size[number] == 0 for number in same)
    alike = "zero" if zero else "the same"
    what = f"all weights of {listed(names)} are {alike} in the first model: their units stay alike"
    return _Fault("zero" if zero else "constant", names, what, scales)


def _scaled(chart: Chart, scales: dict[str, float], began: float) -> _Fault | None:
    """Scales that are far off and whose harm shows."""
    guess = chance(chart)
    large = tuple(name for name, scale in scales.items() if scale > LARGEST)
    small = tuple(name for name, scale in scales.items() if 0 < scale < SMALLEST)
    if large and guess is not None and began > FAR_ABOVE * guess:
        worst = max(scales[name] for name in large)
        what = f"weights of {listed(large)} are up to {worst:.0f} times the size that keeps signals as they are"
        return _Fault("too large", large, what, scales)
    if small and _stays(chart, began):
        worst = min(scales[name] for name in small)
        what = f"weights of {listed(small)} are down to {worst:.1g} of the size that keeps signals as they are"
        return _Fault("too small", small, what, scales)
    return None


def _stays(chart: Chart, began: float) -> bool:
    """The loss has not moved from where it began."""
    losses = evaluated(chart).finite.values
    return len(losses) >= LEAST_ROUNDS and bool(abs(losses[-1] - began) < UNMOVED * began)


def _dead(chart: Chart, scales: dict[str, float]) -> _Fault | None:
    """No matrix moves in any update of the first round, though clients sent updates that are not zero."""
    updates = chart.updates
    if updates is None or not chart.cohorts:
        return None
    rows = chart.cohorts[0][1]
    rows = rows[updates.present[rows]]
    chosen = matrices(updates.layout)
    if not len(rows) or not (updates.norms[rows] > 0).any(axis=1).all() or (updates.norms[rows][:, chosen] != 0).any():
        return None
    names = tuple(updates.layout.layers[number].name for number in chosen)
    what = f"no weight of {listed(names)} moved in the {len(rows)} updates of the first round: the first model is dead"
    return _Fault("dead", names, what, scales)


def _found(fault: _Fault, began: float, guess: float | None) -> Finding:
    loss = f"; its loss is {began:.4g}" if np.isfinite(began) else ""
    loss += f", guessing has {guess:.4g}" if loss and guess is not None else ""
    return write(
        RULE,
        Severity.CRITICAL if fault.kind in ("zero", "constant", "dead") else Severity.WARNING,
        fault.what + loss,
        grade=Grade.CERTAIN if fault.kind in ("zero", "constant", "dead") else Grade.ACCUSED,
        rounds=(0,),
        layers=fault.layers,
        evidence={
            "kind": fault.kind,
            "scales": {name: short(scale) for name, scale in fault.scales.items()},
            "first_loss": short(began),
            "guessing": short(guess) if guess is not None else None,
        },
        next=(
            Action(
                "the framework's default initialisation, or He's (kaiming) for ReLU and Glorot's for tanh", safe=False
            ),
        ),
    )


RULE = WrittenRule(
    code="FL401",
    name="bad initialisation",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.MODELS}),
    explains=frozenset(
        {"FL402", "FL403", "FL404", "FL405", "FL406", "FL407", "FL408", "FL409", "FL410", "FL411", "FL412", "FL413"}
    ),
)
