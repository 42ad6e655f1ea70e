"""A profile to words and to a document: pure functions, for the command line, the report and programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fedvitals.profile.clients import ClientProfile
from fedvitals.profile.communication import Encoded, Way
from fedvitals.profile.learning import Reached
from fedvitals.profile.profile import Profile
from fedvitals.profile.rounds import RoundProfile
from fedvitals.profile.whatif.prediction import Declined, Prediction, Verified
from fedvitals.show.documents import run_document
from fedvitals.show.tables import Table
from fedvitals.show.words import NOTHING, number, plural, safe, seconds, size

PARTS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
BAR = 24  # characters of the longest bar
MOST_CLIENTS = 12  # shown by default: those that were waited for longest
MOST_ROUNDS = 12  # the longest
MOST_LAYERS = 20


def profile_document(
    profile: Profile,
    predictions: Sequence[Prediction],
    targets: Sequence[Reached | None] = (),
    declined: Sequence[Declined] = (),
    verified: Sequence[Verified] | None = None,
) -> dict[str, Any]:
    """What `profile --json` prints; `verified` only where that was asked for."""
    found = profile.bottleneck
    way = profile.communication
    return {
        "run": run_document(profile.run),
        "wall_s": profile.wall_s,
        "breakdown_s": dict(profile.breakdown_s),
        "bottleneck": None if found is None else asdict(found),
        "clients": [asdict(one) for one in profile.clients],
        "rounds": [asdict(one) for one in profile.rounds],
        "communication": {
            "up": asdict(way.up),
            "down": asdict(way.down),
            "layers": [asdict(layer) for layer in way.layers],
        },
        "reached": [asdict(one) for one in targets if one is not None],
        "what_if": [_prediction(one) for one in predictions],
        "not_predicted": [asdict(one) for one in declined],
        "notes": list(profile.notes),
    } | ({} if verified is None else {"verified": [_verified(one) for one in verified]})


def _prediction(one: Prediction) -> dict[str, Any]:
    document = asdict(one)
    document["job"] = None if one.job is None else dict(one.job)
    return document


def _verified(one: Verified) -> dict[str, Any]:
    return asdict(one) | {"error": one.error, "error_apart": one.error_apart}


def verdict_line(profile: Profile) -> str:
    """The bottleneck in a sentence."""
    found = profile.bottleneck
    if found is None:
        return "nothing took any time"
    who = f"client {safe(found.client)}: " if found.client is not None else ""
    return f"{who}{found.phase}, {found.share:.0%} of the wall time ({seconds(found.seconds)})"


def breakdown_table(breakdown: Mapping[str, float], wall_s: float) -> Table:
    """Phases by the time they took on the critical path, with a bar each."""
    ordered = sorted(breakdown.items(), key=lambda pair: -pair[1])
    most = max([*breakdown.values(), 1e-12])
    rows = tuple(
        (name, seconds(took), f"{took / wall_s:.1%}" if wall_s > 0 else NOTHING, bar(took / most))
        for name, took in ordered
    )
    return Table("where the time went", ("phase", "time", "share", ""), rows, frozenset({"phase", ""}))


def bar(share: float) -> str:
    """A bar in eighths of a character."""
    eighths = round(max(min(share, 1.0), 0.0) * BAR * 8)
    return "█" * (eighths // 8) + PARTS[eighths % 8]


def clients_table(clients: Sequence[ClientProfile], most: int | None = MOST_CLIENTS) -> Table:
    ordered = sorted(clients, key=lambda one: (-one.held_s, -one.path_s, -one.busy_s))
    shown = ordered if most is None else ordered[:most]
    title = "clients" if len(shown) == len(ordered) else f"the {len(shown)} of {len(ordered)} clients most waited for"
    rows = tuple(
        (
            safe(one.client),
            str(one.participations),
            str(one.failed + one.late) if one.failed + one.late else NOTHING,
            seconds(one.busy_s),
            seconds(one.path_s) if one.path_s > 0 else NOTHING,
            str(one.held_rounds) if one.held_rounds else NOTHING,
            number(one.samples_per_s),
            seconds(one.step_s),
            f"{one.load_ratio:.0%}" if one.load_ratio is not None else NOTHING,
            f"{one.slowness:.2f}x" if one.slowness is not None else NOTHING,
        )
        for one in shown
    )
    columns = ("client", "parts", "lost", "busy", "on path", "held", "samples/s", "a step", "load", "to median")
    return Table(title, columns, rows, frozenset({"client"}), spare=("a step", "load", "lost", "busy"))


def rounds_table(rounds: Sequence[RoundProfile], most: int | None = MOST_ROUNDS) -> Table:
    ordered = sorted(rounds, key=lambda one: -one.wall_s)
    shown = sorted(ordered if most is None else ordered[:most], key=lambda one: one.start_s)
    title = "rounds" if len(shown) == len(ordered) else f"the {len(shown)} longest of {len(ordered)} rounds"
    rows = tuple(
        (
            str(one.number),
            seconds(one.wall_s),
            _largest(one.breakdown_s, one.wall_s),
            safe(one.holder) if one.holder is not None else NOTHING,
            seconds(one.held_s) if one.holder is not None else NOTHING,
            f"{one.clients - one.failed - one.late}/{one.asked}",
            size(one.bytes_up),
            size(one.bytes_down),
        )
        for one in shown
    )
    columns = ("round", "time", "mostly", "held by", "alone for", "came back", "up", "down")
    return Table(title, columns, rows, frozenset({"mostly", "held by"}), spare=("down", "up", "came back"))


def _largest(breakdown: Mapping[str, float], wall_s: float) -> str:
    name = max(breakdown, key=lambda phase: breakdown[phase])
    return f"{name} {breakdown[name] / wall_s:.0%}" if wall_s > 0 else NOTHING


def bytes_table(profile: Profile) -> Table:
    rows = tuple(
        _way_row(name, way) for name, way in (("up", profile.communication.up), ("down", profile.communication.down))
    )
    columns = ("way", "uncompressed", "over the wire", "ratio", "time", "a second")
    return Table("bytes", columns, rows, frozenset({"way"}))


def layers_table(profile: Profile) -> Table:
    """Where the bytes went, the largest first."""
    layers = sorted(profile.communication.layers, key=lambda one: -(one.wire_bytes_up or one.bytes))
    rows = tuple(
        (safe(one.name, 60), size(one.bytes), f"{one.ratio:.1%}", size(one.wire_bytes_up))
        for one in layers[:MOST_LAYERS]
    )
    of = f"the {len(rows)} largest of {len(layers)} layers" if len(rows) < len(layers) else "layers"
    columns = ("layer", "uncompressed", "share", "up over the wire in all")
    return Table(of, columns, rows, frozenset({"layer"}))


def _way_row(name: str, way: Way) -> tuple[str, ...]:
    return (
        name,
        size(way.raw_bytes),
        size(way.wire_bytes),
        f"{way.ratio:.2f}x" if way.ratio is not None else NOTHING,
        seconds(way.seconds),
        f"{size(way.bytes_per_s)}/s" if way.bytes_per_s is not None else NOTHING,
    )


def codecs_table(codecs: Sequence[Encoded]) -> Table:
    rows = tuple(
        (
            safe(one.codec, 60),
            str(one.updates),
            size(one.raw_bytes),
            size(one.wire_bytes),
            f"{one.ratio:.2f}x",
            f"{size(one.bytes_per_s)}/s",
        )
        for one in codecs
    )
    columns = ("codec", "updates", "uncompressed", "sent", "ratio", "encoding")
    return Table("what codecs would have sent, an update", columns, rows, frozenset({"codec"}))


def predictions_table(predictions: Sequence[Prediction]) -> Table:
    rows = tuple(
        (
            str(place),
            safe(one.change, 80),
            seconds(one.round_s),
            seconds(one.predicted_s),
            f"{one.saves:+.0%}".replace("+", "-") if one.saves > 0 else f"+{-one.saves:.0%}",
            "yes" if one.unverified is None else "no",
        )
        for place, one in enumerate(predictions, start=1)
    )
    columns = ("", "what if", "a round", "the run", "change", "--verify")
    return Table("what would make it shorter (predicted)", columns, rows, frozenset({"what if", "--verify"}))


def assumption_lines(predictions: Sequence[Prediction], declined: Sequence[Declined]) -> list[tuple[str, str]]:
    """What the predictions take for granted and why some cannot be verified, each once with their numbers; then what is
    not predicted."""
    found: dict[tuple[str, str], list[str]] = {}
    for place, one in enumerate(predictions, start=1):
        for text in one.assumes:
            found.setdefault(("assumes", text), []).append(str(place))
    for place, one in enumerate(predictions, start=1):
        if one.unverified is not None:
            found.setdefault(("unverified", one.unverified), []).append(str(place))
    lines = [(word, f"{safe(text, 400)} [{', '.join(places)}]") for (word, text), places in found.items()]
    return lines + [("not predicted", f"{safe(one.change, 80)}: {safe(one.why, 400)}") for one in declined]


def verified_table(verified: Sequence[Verified]) -> Table:
    rows = tuple(
        (
            safe(one.change, 80),
            seconds(one.predicted_s),
            seconds(one.measured_s),
            f"{one.error:+.1%}" if one.error is not None else f"failed: {safe(one.why or '', 200)}",
            f"{one.error_apart:+.1%}" if one.error_apart is not None else NOTHING,
        )
        for one in verified
    )
    columns = ("what if", "predicted", "measured", "error", "the machine apart")
    return Table("predicted against measured", columns, rows, frozenset({"what if"}))


def reached_line(target: float, found: Reached | None) -> str:
    if found is None:
        return f"accuracy {target:g} was never reached"
    return (
        f"accuracy {target:g} after {plural(found.rounds, 'round')}, {seconds(found.seconds)}, "
        f"{size(found.bytes_up)} up and {size(found.bytes_down)} down"
    )


def trend_line(rounds: Sequence[RoundProfile]) -> str | None:
    """How the rounds' times go over the run, in a sentence; None where they are too few."""
    took = [one.wall_s for one in rounds]
    if len(took) < 8 or not all(map(math.isfinite, took)) or not any(took):
        return None
    quarter = max(len(took) // 4, 2)
    first, last = sorted(took[:quarter])[quarter // 2], sorted(took[-quarter:])[quarter // 2]
    return f"a round took {seconds(first)} at first and {seconds(last)} at last (medians of {quarter})"
