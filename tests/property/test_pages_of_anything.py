"""Whatever a run's file says, it has a page, figures and a trace; none of them ends in an error."""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedvitals.export.perfetto import write_trace
from fedvitals.show.report import contents_of, page
from fedvitals.store import SQLiteStore, awkward
from fedvitals.vocabulary import Evaluation, Failure, Participation, ResourceSample, Round, Run, Span

KINDS = (Round, Participation, Span, Evaluation, Failure, ResourceSample)
SOON = st.integers(-3, 50).map(lambda tenths: tenths * 10**8)


@st.composite
def _runs(draw: st.DrawFn) -> tuple[Run, list[Any]]:
    """A run of any records, many of them about the same few rounds, clients and seconds."""
    layout = draw(awkward.layouts())
    found: list[Any] = [layout]
    for kind in KINDS:
        some = draw(st.lists(awkward.records(kind), max_size=4))
        found += [_brought_together(draw, one) if draw(st.booleans()) else one for one in some]
    found += [draw(awkward.update_blocks(layout, number)) for number in range(draw(st.integers(0, 2)))]
    found += draw(st.lists(awkward.step_blocks(layout), max_size=2))
    return draw(awkward.runs()), found


def _brought_together(draw: st.DrawFn, one: Any) -> Any:
    values: dict[str, Any] = {"round": draw(st.integers(0, 2)), "number": draw(st.integers(0, 2))}
    values |= {"client": draw(st.sampled_from("ab")), "attempt": draw(st.integers(0, 2))}
    values |= {name: draw(SOON) for name in ("start_ns", "end_ns", "at_ns")}
    return one._replace(**{name: value for name, value in values.items() if name in one._fields})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(_runs())
def test_any_run_has_a_page_and_a_trace(made: tuple[Run, list[Any]]) -> None:
    """Infinities, instants before the beginning of time, names of nothing, rounds that nobody began."""
    run, records = made
    sink = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder))
        with closing(store.create(run)) as journal:
            journal.append([run, *records])
        with closing(store.open(run.id)) as reader:
            shown = page(contents_of(reader))
            written = write_trace(reader, sink)
    assert shown.endswith("</html>\n")
    events = json.loads(sink.getvalue())["traceEvents"]
    assert len(events) == written.events
    assert min(event["ts"] for event in events) >= 0
