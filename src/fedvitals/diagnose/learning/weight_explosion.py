"""Weight explosion.

Sees: a matrix of the global model whose norm has grown to more than ten times what it was at first, or than a usual
initialisation of its shape would have, whichever is larger.

Matters: large weights saturate, overflow and make a model that changes its mind at the least change of an input.

Evidence: the layer, its norm at first and last, the round in which it grew most.

False alarms: a healthy run makes its weights grow by a small factor; zero and tiny initialisations are measured against
the usual one, so their growth does not count. Running statistics, biases and embeddings are left out.

Do: look for who sent it: this usually follows from another finding. Otherwise weight decay, a lower learning rate,
clipping.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import NORM, Chart
from fedvitals.diagnose.learning.depths import fan_in, matrices
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.writing import factor, short, write
from fedvitals.vocabulary import Action, Finding, Grade, Severity

GROWN = 10.0


def _look(chart: Chart) -> Iterator[Finding]:
    models = sorted(chart.models, key=lambda one: one.version)
    layout = next((one for one in chart.layouts if one.id == models[0].layout), None)
    chosen = matrices(layout) if layout is not None else []
    models = [one for one in models if one.layout == models[0].layout]
    if layout is None or not chosen or len(models) < 2:
        raise CannotSee("it takes two global models with a matrix to see them grow")
    norms = np.stack([one.stats[chosen, NORM] for one in models]).astype(np.float64)
    usual = np.sqrt([layout.layers[number].size / fan_in(layout.layers[number]) for number in chosen])
    base = np.fmax(norms[0], usual)
    largest = np.where(np.isfinite(norms), norms, 0.0).max(axis=0)
    worst = int(np.argmax(largest / base))
    if not largest[worst] > GROWN * base[worst]:
        return
    grown = tuple(layout.layers[n].name for n, one in zip(chosen, largest > GROWN * base, strict=True) if one)
    first = int(np.argmax((norms > GROWN * base).any(axis=1)))
    number = models[first].round if models[first].round >= 0 else models[first - 1].round + 1
    yield write(
        RULE,
        Severity.WARNING,
        f"{layout.layers[chosen[worst]].name} of the global model grew to a norm of {largest[worst]:.4g}, "
        f"{factor(largest[worst] / base[worst])} its beginning or a usual one ({base[worst]:.3g}); beyond ten "
        f"times since round {number}",
        grade=Grade.CERTAIN,
        rounds=[one.round for one in models[first:] if one.round >= 0] or (number,),
        layers=grown,
        evidence={
            "norm": short(largest[worst]),
            "first_norm": short(norms[0][worst]),
            "usual_norm": short(usual[worst]),
            "since_round": number,
        },
        next=(
            Action(f"fedvitals show RUN --round {max(number - 1, 0)}"),
            Action("weight decay, a lower learning rate, or train.clip = 1.0", safe=False),
        ),
    )


RULE = WrittenRule(
    code="FL410", name="weight explosion", page=__doc__ or "", look=_look, needs=frozenset({Sight.MODELS})
)
