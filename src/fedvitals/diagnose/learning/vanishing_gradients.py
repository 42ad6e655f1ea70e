"""Vanishing gradients.

Sees: norms of sampled gradients a layer (of updates, where none were sampled), from the last matrix back to the first,
in models of three matrices or more: the first layers' root mean square is below a thousandth of the last one's in most
participations of most rounds, while the model does not learn.

Matters: the first layers stay as they were drawn; the model is as good as its last layer on random features.

Evidence: the ratio across depth, the layers below it, the loss at first and last.

False alarms: a ratio, so that gradients which shrink together as a run converges do not count; and only where the loss
has not fallen by a tenth. The first layers of a trained net are often ten, rarely a hundred times below the last.

Do: ReLU instead of sigmoid or tanh, normalisation layers, shortcuts, He's initialisation, fewer layers.

Papers: Hochreiter 1991; Glorot and Bengio 2010, Understanding the difficulty of training deep feedforward neural
networks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.learning.curves import beginning, learning_curve
from fedvitals.diagnose.learning.depths import depths
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import changing, short, write
from fedvitals.vocabulary import Finding, Grade, Severity

DEEP = 3  # matrices
BELOW = 1e-3  # of the last matrix's
MOST = 0.5  # of the participations
LEARNT = 0.9  # of the first loss


def _look(chart: Chart) -> Iterator[Finding]:
    seen = chart.shared(depths)
    if seen is None or not seen.known.any():
        raise CannotSee("neither gradients nor updates of any matrix were seen")
    sizes = seen.some()
    sizes = sizes[sizes[:, -1] > 0]
    if seen.sizes.shape[1] < DEEP or not len(sizes):
        return
    ratios = sizes / sizes[:, -1:]
    gone = np.median(ratios, axis=0) < BELOW
    if not gone[0] or (ratios[:, 0] < BELOW).mean() <= MOST:
        return
    curve = learning_curve(chart, 2).finite
    if len(curve) < 2 or np.median(curve.values[-3:]) < LEARNT * beginning(chart, curve):
        return
    layers = tuple(name for name, one in zip(seen.names, gone, strict=True) if one)
    ratio = float(np.median(ratios[:, 0]))
    yield write(
        RULE,
        Severity.WARNING,
        f"{seen.of} of {layers[0]} are typically {ratio:.1e} of the last layer's in size (below a thousandth in "
        f"{listed(layers)}), and the {curve.of} went from {curve.values[0]:.4g} to {curve.values[-1]:.4g} only",
        grade=Grade.ACCUSED,
        rounds=curve.rounds[curve.rounds >= 0],
        layers=layers,
        evidence={
            "depth_ratio": short(ratio),
            "of": seen.of,
            "start": short(curve.values[0]),
            "end": short(curve.values[-1]),
        },
        next=changing(
            "ReLU instead of sigmoid or tanh, normalisation layers, or fewer layers",
            "He's (kaiming) initialisation",
        ),
    )


RULE = WrittenRule(
    code="FL408",
    name="vanishing gradients",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.UPDATES}),
    explains=frozenset({"FL404", "FL406", "FL409", "FL413"}),
)
