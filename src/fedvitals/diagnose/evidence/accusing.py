"""A suspicion -> a finding: who, since when, and the numbers that carried it, beside those of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.course import LEAST_COHORT, course
from fedvitals.diagnose.evidence.limits import ACCUSED, SUSPECTED
from fedvitals.diagnose.evidence.measures import NAMES
from fedvitals.diagnose.evidence.suspicion import Suspicion, suspicions
from fedvitals.diagnose.evidence.together import Turn
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.rule import CannotSee, Rule, Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import see_client, write
from fedvitals.store.table import Floats
from fedvitals.vocabulary import Action, Finding, Grade, Severity

SCORED_CODES = frozenset({"FL505", "FL506", "FL507", "FL601", "FL602", "FL603", "FL607", "FL608"})
# what the scorer may call a client whose true fault an exact rule knows: folded under that
HARMS = frozenset({"FL402", "FL403", "FL404", "FL406", "FL410", "FL501", "FL503", "FL504", "FL505"})
# what a bad client does to the run as a whole
REORDERED, MISLABELLED = "swapped-features", "label-noise"  # kinds of fault
UNDOES = -0.25  # cosine to the others: four times a sketch's error below none
SEE = "{see}"
IN_WORDS = {
    "norm": ("norm for its steps", True),
    "first_loss": ("loss of its first steps", True),
    "loss": ("mean loss", True),
    "last_loss": ("loss of its last steps", True),
    "loss_drop": ("last loss over first", True),
    "loss_jump": ("largest loss over first", True),
    "loss_rough": ("unsteadiness of its losses", False),
    "norm_for_loss": ("norm over first loss", True),
    "last_share": ("share of the last matrix in its norm", True),
    "first_share": ("share of the first matrix in its norm", True),
    "bias_share": ("share of the biases in its norm", True),
    "range_first": ("range over std in the first matrix", True),
    "range_last": ("range over std in the last matrix", True),
    "zeros_first": ("share of the first matrix that did not move", False),
    "mean_last": ("mean over std of the last bias", False),
    "bias_rows": ("correlation of the last bias with its rows", False),
    "bias_skew": ("skew of the last bias", False),
    "units_focus": ("concentration on few output units", False),
    "samples": ("rows", True),
    "gradient": ("norm of its first gradient", True),
    "gradient_first": ("share of the first matrix in its first gradient", True),
    "rate": ("norm for its steps and first gradient", True),
    "late_loss": ("loss of the second half of its steps", True),
    "push": ("how far it pushes the output units", True),
    "push_up": ("how far it pushes one of them up", True),
    "push_down": ("how far it pushes one of them down", True),
    "bias_push": ("how far it moves the last bias", True),
    "cosine": ("cosine to the others", False),
    "cosine_first": ("cosine to the others in the first matrix", False),
    "cosine_last": ("cosine to the others in the last matrix", False),
    "cosine_bias": ("cosine to the others in the last bias", False),
    "cosine_units": ("cosine to the others over output units", False),
    "nearest": ("cosine to its nearest neighbour", False),
    "profile": ("distance of its layer profile", True),
    "cosine_rows": ("cosine to the others, output unit by output unit", False),
    "own_previous": ("cosine to its own last update", False),
    "own_mean": ("cosine to its own past", False),
    "own_first": ("cosine to its own first updates", False),
    "own_signature": ("likeness to its own past beside the cohort's", False),
    "own_units": ("likeness of the units it pushes to its own past", False),
    "own_last": ("cosine to its own past in the last matrix", False),
    "own_rows": ("cosine to its own past, output unit by output unit", False),
    "late_signature": ("likeness of its last five to all before, beside the cohort's", False),
    "late_steady": ("how steadily its last five differ from the cohort", False),
    "late_news": ("how steadily its last five differ in new ways", False),
    "long_signature": ("likeness of its last eight to all before, beside the cohort's", False),
    "long_news": ("how steadily its last eight differ in new ways", False),
    "late_last": ("likeness of its last five to all before in the last matrix", False),
    "late_first": ("likeness of its last five to all before in the first matrix", False),
    "late_pushed": ("most that a unit is pushed more than before", False),
    "late_pulled": ("most that a unit is pushed less than before", False),
    "late_rows": ("likeness of the output units' rows in its last five to all before", False),
    "late_rows_news": ("how steadily these rows differ in new ways", False),
    "steady_push": ("how far its last five together push output units unlike the others", True),
    "push_shift": ("how far that is from what it did before", True),
    "push_shift_soon": ("how far its last three push output units from where it did before", True),
}  # in words, and whether the measure is a logarithm


def scored_rule(
    code: str, name: str, page: str, *, kinds: Sequence[str], sentence: str, severity: Severity, next: Sequence[Action]
) -> WrittenRule:
    """A rule that has nothing to look at but what the scorer says of these kinds; its page says the rest."""

    def look(chart: Chart) -> Iterator[Finding]:
        check_comparable(chart)
        return accusations(chart, rule, kinds, sentence, severity, next)

    rule = WrittenRule(code, name, page, look, frozenset({Sight.SKETCHES}), HARMS)
    return rule


def check_comparable(chart: Chart) -> None:
    """CannotSee where no update was ever held against others. To be asked by rules that have nothing else to go by: who
    looks at the run as a whole, too, goes on."""
    if not len(chart.shared(course).measured):
        raise CannotSee(f"no round has {LEAST_COHORT} clients whose updates can be compared")


def accusations(
    chart: Chart,
    rule: Rule,
    kinds: Sequence[str],
    sentence: str,
    severity: Severity,
    next: Sequence[Action],
    *,
    but: Sequence[str] = (),
) -> Iterator[Finding]:
    """At most two findings: the accused of these kinds, and the suspects. `but` are clients that are explained already.

    `sentence` follows the client's name; actions may say {clients}, and SEE for the command that shows the first.
    """
    found = [one for one in chart.shared(suspicions) if called(chart, one) in kinds]
    found = [one for one in found if chart.clients[one.client] not in but]
    for grade in (Grade.ACCUSED, Grade.SUSPECT):
        group = sorted((one for one in found if one.grade is grade), key=lambda one: one.threshold - one.score)
        if not group:
            continue
        names = chart.names([one.client for one in group])
        also = f"; the same of {listed(names[1:])}" if len(names) > 1 else ""
        perhaps = "" if grade is Grade.ACCUSED else "perhaps "
        yield write(
            rule,
            severity if grade is Grade.ACCUSED else Severity.INFO,
            f"client {names[0]} {perhaps}{sentence}: {numbers(chart, group[0])}{also}{_together(chart, group)}",
            grade=grade,
            rounds=[number for one in group for number in one.rounds],
            clients=names,
            evidence={chart.clients[one.client]: _evidence(chart, one) for one in group},
            next=[about(one, names) for one in next],
        )


def called(chart: Chart, suspicion: Suspicion) -> str:
    """The kind of fault that it is taken for. Inputs in another order move weights that the others' do not, and its
    updates go across theirs; who undoes what they do has their inputs, and other labels."""
    if suspicion.kind != REORDERED:
        return suspicion.kind
    rows = chart.histories[suspicion.client]
    rows = rows[np.isin(chart.participations.round[rows], suspicion.rounds)]
    against = median(chart.shared(course).raw[rows, NAMES.index("cosine")]) < UNDOES
    return MISLABELLED if against else REORDERED


def _together(chart: Chart, group: Sequence[Suspicion]) -> str:
    """What makes a client be named that alone would not be."""
    turn = next((one.turn for one in group if one.turn is not None), None)
    if turn is not None:
        return (
            f"; {listed(chart.names(turn.clients))} changed in the same way in round {turn.round}, where they had been "
            f"unlike: their changes have a mean cosine of {turn.alike:.2f} to each other (before: "
            f"{turn.alike_before:.2f}) and lie {turn.apart:.1f} deviations away from everybody else's"
        )
    alone = (ACCUSED if group[0].grade is Grade.ACCUSED else SUSPECTED).alone
    if any(one.score >= alone for one in group):
        return ""
    return "; not enough for one alone, but several clients of this run stand out together"


def about(action: Action, names: Sequence[str]) -> Action:
    """The action, with the clients that it is about."""
    text = action.text.replace(SEE, see_client(names[0])).replace("{clients}", listed(names))
    return Action(text, action.safe)


def numbers(chart: Chart, suspicion: Suspicion) -> str:
    """The measures that carried it, in the round in which it was noticed, beside the others' and its own before."""
    return "; ".join(_number(chart, suspicion.row, name) for name in suspicion.carriers) or "by many small signs"


def _number(chart: Chart, row: int, name: str) -> str:
    value, others, before = beside(chart, row, name)
    return in_words(name, value, others, before)


def in_words(name: str, value: float, others: Floats, before: Floats | None = None) -> str:
    """A measure's value, with the range of the others' and the client's own median before."""
    words, logarithm = IN_WORDS[name]
    own = f", its own before {_shown(np.median(before), logarithm)}" if before is not None and len(before) else ""
    among = "alone"
    if len(others):
        among = f"the other {len(others)} {_shown(others.min(), logarithm)} to {_shown(others.max(), logarithm)}"
    return f"{words} {_shown(value, logarithm)} ({among}{own})"


def _shown(value: float | np.floating, logarithm: bool) -> str:
    return f"{np.exp(np.clip(value, -50, 50)):.3g}" if logarithm else f"{value:.2f}"


def beside(chart: Chart, row: int, name: str) -> tuple[float, Floats, Floats]:
    """The value, those of the others of its round who are not suspected, and its own of earlier rounds."""
    table, values = chart.participations, chart.shared(course).raw[:, NAMES.index(name)]
    suspected = [one.client for one in chart.shared(suspicions)]
    others = values[(table.round == table.round[row]) & ~np.isin(table.client, suspected)]
    before = values[(table.client == table.client[row]) & (table.attempt < table.attempt[row])]
    return float(values[row]), others[np.isfinite(others)], before[np.isfinite(before)]


def _evidence(chart: Chart, suspicion: Suspicion) -> dict[str, object]:
    measures = {}
    for name in suspicion.carriers:
        value, others, before = beside(chart, suspicion.row, name)
        measures[name] = {
            "value": round(value, 4),
            "others": [round(float(one), 4) for one in (others.min(), np.median(others), others.max())]
            if len(others)
            else [],
            "own_before": round(float(np.median(before)), 4) if len(before) else None,
        }
    return {
        "score": round(suspicion.score, 3),
        "threshold": round(suspicion.threshold, 3),
        "noticed_in_round": int(chart.participations.round[suspicion.row]),
        "measures": measures,
        **({} if suspicion.turn is None else {"turned": _turn(chart, suspicion.turn)}),
    }


def _turn(chart: Chart, turn: Turn) -> dict[str, object]:
    return {
        "round": turn.round,
        "clients": list(chart.names(turn.clients)),
        "apart": round(turn.apart, 3),
        "alike": round(turn.alike, 3),
        "alike_before": round(turn.alike_before, 3),
    }
