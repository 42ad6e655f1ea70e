"""The sections of a report, each from its contents to HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedvitals.diagnose.words import Spoken, naming, parts, remarks, title, unseen, verdict
from fedvitals.show import profiles
from fedvitals.show.findings import worst
from fedvitals.show.report.contents import Contents
from fedvitals.show.report.markup import facts, folded, paragraph, section, table, text
from fedvitals.show.tables import Table, failures_table, header_lines
from fedvitals.show.words import NOTHING, plural, safe, seconds, size
from fedvitals.vocabulary import Finding

MOST_CLIENTS, MOST_ROUNDS, MOST_FAILURES = 1_000, 1_000, 50
Picture = Callable[[str], str]  # the place of a figure on the page, by its name; nothing where there is none


def header(found: Contents) -> str:
    """Which run this is."""
    lines = header_lines(found.overview, len(found.profile.timeline.participations))[1:]
    run = found.overview.run
    return f"<header><h1>{text(run.name)}</h1>{facts([('run', safe(run.id)), *lines])}</header>"


def doctor(found: Contents) -> str:
    """The verdict, then the findings, the gravest first."""
    diagnosis = found.diagnosis
    kind = "healthy" if diagnosis.healthy else "verdict"
    spoken = naming(diagnosis.run.id)
    findings = "".join(_finding(one, spoken) for one in diagnosis.findings)
    blind = "".join(paragraph(line) for line in unseen(diagnosis, width=10_000))
    count = len(diagnosis.not_observable)
    rest = folded(f"{plural(count, 'rule')} could not see enough to judge", blind) if blind else ""
    return section("Verdict", "verdict", paragraph(verdict(diagnosis), kind), findings, rest)


def _finding(one: Finding, spoken: Spoken) -> str:
    severity, *places = remarks(one)
    where = f'<span class="where">{text(" · ".join(places))}</span>' if places else ""
    head = f'<h3><span class="badge {one.severity.value}">{text(severity)}</span> {text(title(one))} {where}</h3>'
    lines = "".join(_part(label, words) for label, words in parts(one, spoken))
    return f'<article class="finding {worst(one).value}">{head}<dl>{lines}</dl></article>'


def _part(label: str, words: str) -> str:
    shown = f"<code>{text(words)}</code>" if "fedvitals " in words else text(words)
    return f"<div><dt>{text(label)}</dt><dd>{shown}</dd></div>"


def learning(found: Contents, picture: Picture) -> str:
    return section("How it learned", "learning", picture("learning"), picture("cosine"), picture("gradients"))


def time(found: Contents, picture: Picture) -> str:
    """The bottleneck, where the time went, and who was waited for."""
    profile = found.profile
    lines = [("wall time", seconds(profile.wall_s))]
    if profile.bottleneck is not None:
        lines += [("bottleneck", profiles.verdict_line(profile)), ("why", safe(profile.bottleneck.why, 400))]
    lines += profiles.course_lines(profile.course)
    lines += [("note", safe(note)) for note in profile.notes]
    phases = profiles.breakdown_table(profile.breakdown_s, profile.wall_s, profile.clients_breakdown_s)
    spent = [profile.breakdown_s.get(row[0], 0.0) for row in phases.rows]
    shares = [took / max(spent[0], 1e-12) for took in spent]
    named = phases._replace(title="by phase, on the critical path")
    where = table(named, shares=shares) if profile.wall_s > 0 else ""
    pictures = [picture(name) for name in ("breakdown", "path", "waterfall", "round path", "seconds")]
    return section("Where the time went", "time", facts(lines), where, *pictures)


def what_if(found: Contents) -> str:
    if not found.predictions:
        return ""
    assumed = dict.fromkeys(one for each in found.predictions for one in each.assumes)
    notes = "".join(f"<li>{text(one)}</li>" for one in assumed)
    return section(
        "What would make it shorter",
        "what-if",
        table(profiles.predictions_table(found.predictions)._replace(title="predicted from this run's own times")),
        folded("what the predictions assume", f"<ul>{notes}</ul>") if notes else "",
    )


def who(found: Contents) -> str:
    """Tables of clients and rounds: the first few, and all of them to unfold."""
    pairs = (
        (profiles.clients_table(found.profile.clients), profiles.clients_table(found.profile.clients, MOST_CLIENTS)),
        (profiles.rounds_table(found.profile.rounds), profiles.rounds_table(found.profile.rounds, MOST_ROUNDS)),
    )
    shown = "".join(_shortly(*pair) for pair in pairs if pair[0].rows)
    return section("Clients and rounds", "clients", shown, _failures(found))


def _shortly(few: Table, many: Table) -> str:
    more = (
        folded(many.title if "of" in many.title else f"all {len(many.rows)} {many.title}", table(many))
        if len(many.rows) > len(few.rows)
        else ""
    )
    return table(few) + more


def _failures(found: Contents) -> str:
    if not found.failures:
        return ""
    shown = failures_table(found.failures[:MOST_FAILURES])
    of = f" (the first {MOST_FAILURES} of {len(found.failures)})" if len(found.failures) > MOST_FAILURES else ""
    return table(shown._replace(title=f"failures{of}"))


def traffic(found: Contents, picture: Picture) -> str:
    """Bytes, each way and by layer."""
    way = found.profile.communication
    known = way.up.wire_bytes is not None or way.down.wire_bytes is not None
    layers = profiles.layers_table(found.profile)
    return section(
        "Bytes",
        "bytes",
        table(profiles.bytes_table(found.profile)._replace(title="each way")) if known else "",
        picture("bytes"),
        table(layers) if layers.rows else "",
    )


def memory(found: Contents, picture: Picture) -> str:
    drawn = picture("memory")
    return section("Memory", "memory", facts(_memory_lines(found)), drawn) if drawn else ""


def _memory_lines(found: Contents) -> Iterator[tuple[str, str]]:
    one = found.memory
    yield "highest", size(one.peak_bytes)
    if one.limit_bytes is not None:
        yield "there is", size(one.limit_bytes)
    if one.growth_bytes is not None:
        yield "growth", f"{size(one.growth_bytes)} from the first sample to the last"
    for device in one.devices:
        yield safe(device.name, 20), f"{size(device.peak_bytes)} of {size(device.total_bytes)} at most"
    if one.phases:
        top = one.phases[0]
        yield "largest rise", f"{safe(top.name, 40)}: {size(top.rise_bytes)}" if top.rise_bytes > 0 else NOTHING
