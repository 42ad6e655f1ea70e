"""A profile to words and to a document: pure functions, for the command line, the report and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fedvitals.profile.clients import ClientProfile
from fedvitals.profile.communication import Encoded, Way
from fedvitals.profile.course import Course
from fedvitals.profile.learning import Reached
from fedvitals.profile.profile import Profile
from fedvitals.profile.rounds import RoundProfile
from fedvitals.profile.whatif.prediction import Declined, Prediction, Verified
from fedvitals.show.documents import run_document
from fedvitals.show.tables import Table
from fedvitals.show.words import NOTHING, number, plural, safe, seconds, size
from fedvitals.vocabulary import CLIENT_PHASES

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
        "clients_breakdown_s": dict(profile.clients_breakdown_s),
        "bottleneck": None if found is None else asdict(found),
        "course": asdict(profile.course)
        | {"availability": profile.course.availability, "failure_rate": profile.course.failure_rate},
        "clients": [asdict(one) for one in profile.clients],
        "rounds": [asdict(one) for one in profile.rounds],
        "communication": {
            "up": asdict(way.up),
            "down": asdict(way.down),
            "clients": [{"client": name, "up": asdict(up), "down": asdict(down)} for name, up, down in way.clients],
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


def breakdown_table(breakdown: Mapping[str, float], wall_s: float, clients: Mapping[str, float]) -> Table:
    """Phases by the time they took on the critical path, with a bar each, beside that of all clients together."""
    told = dict.fromkeys(clients, 0.0) | dict(breakdown)
    ordered = sorted(told.items(), key=lambda pair: -pair[1])
    most = max([*told.values(), 1e-12])
    rows = tuple(
        (
            name,
            seconds(took),
            f"{took / wall_s:.1%}" if wall_s > 0 else NOTHING,
            seconds(clients[name]) if clients.get(name) else NOTHING,
            bar(took / most),
        )
        for name, took in ordered
    )
    columns = ("phase", "time", "share", "all clients", "")
    return Table("where the time went", columns, rows, frozenset({"phase", ""}), spare=("all clients",))


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
            seconds(one.epoch_s),
            f"{one.load_ratio:.0%}" if one.load_ratio is not None else NOTHING,
            f"{one.slowness:.2f}x" if one.slowness is not None else NOTHING,
        )
        for one in shown
    )
    columns = (
        "client",
        "parts",
        "lost",
        "busy",
        "on path",
        "held",
        "samples/s",
        "a step",
        "an epoch",
        "load",
        "to median",
    )
    return Table(title, columns, rows, frozenset({"client"}), spare=("an epoch", "a step", "load", "lost", "busy"))


def own_times_table(clients: Sequence[ClientProfile]) -> Table:
    """What each client did with its own time, in the phases that it told of."""
    phases = [phase for phase in CLIENT_PHASES if any(phase in one.phases_s for one in clients)]
    rows = tuple(
        (safe(one.client), *(seconds(one.phases_s.get(phase)) for phase in phases))
        for one in sorted(clients, key=lambda one: -one.busy_s)
        if one.phases_s
    )
    return Table("clients' own time", ("client", *phases), rows, frozenset({"client"}))


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
    columns = ("round", "time", "mostly", "held by", "alone for", "in time", "up", "down")
    return Table(title, columns, rows, frozenset({"mostly", "held by"}), spare=("down", "up", "in time"))


def _largest(breakdown: Mapping[str, float], wall_s: float) -> str:
    name = max(breakdown, key=lambda phase: breakdown[phase])
    return f"{name} {breakdown[name] / wall_s:.0%}" if wall_s > 0 else NOTHING


def bytes_table(profile: Profile) -> Table:
    """Each way of which anything is known."""
    ways = (("up", profile.communication.up), ("down", profile.communication.down))
    rows = tuple(_way_row(name, way) for name, way in ways if way.raw_bytes is not None or way.wire_bytes is not None)
    columns = ("way", "uncompressed", "over the wire", "ratio", "time", "a second")
    return Table("bytes", columns, rows, frozenset({"way"}))


def client_bytes_table(profile: Profile) -> Table:
    """Who sent and received how much over the wire, the most first."""
    ways = [(name, up, down) for name, up, down in profile.communication.clients if up.wire_bytes or down.wire_bytes]
    rows = tuple(
        (safe(name), *(cell for way in (up, down) for cell in _way_row("", way)[2:]))
        for name, up, down in sorted(ways, key=lambda one: -((one[1].wire_bytes or 0) + (one[2].wire_bytes or 0)))
    )
    columns = ("client", "up", "ratio", "time", "up/s", "down", "ratio ", "time ", "down/s")
    return Table("bytes by client", columns, rows, frozenset({"client"}), spare=("time ", "time", "ratio ", "ratio"))


def layers_table(profile: Profile) -> Table:
    """Where the bytes went, the largest first."""
    layers = sorted(profile.communication.layers, key=lambda one: -(one.wire_bytes_up or one.bytes))
    rows = tuple(
        (safe(one.name, 60), size(one.bytes), f"{one.ratio:.1%}", size(one.wire_bytes_up), size(one.wire_bytes_down))
        for one in layers[:MOST_LAYERS]
    )
    of = f"the {len(rows)} largest of {len(layers)} layers" if len(rows) < len(layers) else "layers"
    columns = ("layer", "uncompressed", "share", "up in all", "down in all")
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
    columns = ("codec", "updates", "uncompressed", "sent", "ratio", "there and back")
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


def course_lines(course: Course) -> list[tuple[str, str]]:
    """How the run went: its rounds' times, and how often clients answered."""
    lines = []
    if course.trend is not None:
        first, last, of = seconds(course.trend.first_s), seconds(course.trend.last_s), course.trend.quarter
        lines.append(("trend", f"a round took {first} at first and {last} at last (medians of {of})"))
    lines += [("slower", safe(one.why, 400)) for one in course.regressions]
    if course.asked:
        lines.append(("answers", _answers(course)))
    return lines


def _answers(course: Course) -> str:
    parts = [f"{course.answered:,} of {course.asked:,} came back ({course.availability:.1%})"]
    parts += [f"{course.late:,} of them late"] if course.late else []
    parts += [f"{course.failed:,} failed or never did ({course.failure_rate:.1%})"] if course.failed else []
    return ", ".join(parts)
