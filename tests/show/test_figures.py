"""The figures: what they show of a run whose every instant is known, and that they stay light and harmless."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import HOSTILE, write_run
from scripted import a_round, profiled, span, work

from fedvitals.bench import made_up
from fedvitals.errors import FedvitalsError
from fedvitals.profile.memory import memory_profile
from fedvitals.profile.profile import Profile, profile_of
from fedvitals.show import figures
from fedvitals.show.figures.look import COLOURS, distinct, plain, template
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import PHASES, Evaluation, Outcome, Record, ResourceSample, Round, Run, Status

ATTACK = "<script>alert(1)</script>"
MOST_POINTS = 40_000


def _title(figure: Any) -> str:
    return str(figure.layout.title.text)


def _bars(figure: Any) -> dict[str, list[float]]:
    """The lengths of the bars, by phase."""
    return {
        trace.name: [float(one) for one in (trace.x if trace.orientation == "h" else trace.y)]
        for trace in figure.data
        if trace.type == "bar"
    }


@pytest.fixture
def simple(tmp_path: Path) -> Profile:
    """Ten seconds: one client ends the first round, another fails in the second."""
    records: list[Record] = [
        a_round(0, 0, 6),
        span(1, "select", 0, 1),
        work("a", 1, 3, {"train": 2}),
        work("b", 1, 5, {"train": 1, "upload": 3}),
        span(2, "aggregate", 5, 6),
        a_round(1, 6, 10),
        work("a", 6, 8, {"train": 2}, round=1, attempt=1, outcome=Outcome.FAILED),
        work("b", 6, 10, {"train": 4}, round=1, attempt=1),
    ]
    return profiled(tmp_path, records, end=10)


def test_every_phase_has_a_colour_of_its_own() -> None:
    """And so has what nothing explains."""
    assert set(COLOURS) == {*PHASES, "unexplained"}
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_a_breakdown_adds_up_to_each_round(simple: Profile) -> None:
    """Stacked, in seconds, over the rounds' own numbers."""
    figure = figures.breakdown(simple)
    bars = _bars(figure)
    assert np.sum(list(bars.values()), axis=0) == pytest.approx([6, 4])
    assert bars["train"] == pytest.approx([1, 4])
    assert bars["upload"] == pytest.approx([3, 0])
    assert figure.layout.yaxis.title.text == "time a round (s)"
    assert list(figure.data[0].x) == [0, 1]


def test_a_waterfall_has_a_row_a_client_in_the_order_of_their_starts(simple: Profile) -> None:
    """The server first; each stretch where it was; who did not come back is marked."""
    figure = figures.waterfall(simple, 1)
    assert list(figure.layout.yaxis.categoryarray) == ["server", "a", "b"]
    train = next(trace for trace in figure.data if trace.name == "train")
    assert (list(train.y), list(train.base), list(train.x)) == (["a", "b"], [0, 0], [2, 4])
    marks = next(trace for trace in figure.data if trace.type == "scatter")
    assert (list(marks.y), list(marks.text)) == (["a"], [" failed"])
    assert "4.0 s" in _title(figure)


def test_the_critical_path_says_whom_the_run_waited_for(simple: Profile) -> None:
    """Longest first; together they are the whole run. Of one round it is the chain in time."""
    figure = figures.critical_path(simple)
    assert list(figure.layout.yaxis.categoryarray) == ["b", "server"]
    assert np.sum(list(_bars(figure).values())) == pytest.approx(10)
    chain = figures.critical_path(simple, 0)
    assert list(chain.layout.yaxis.categoryarray) == ["server", "b"]
    assert np.sum([sum(lengths) for lengths in _bars(chain).values()]) == pytest.approx(6)


def test_a_heat_map_has_a_row_a_client_and_a_column_a_round(simple: Profile) -> None:
    """Any measure that is known; others are refused with the nearest."""
    figure = figures.heat_map(simple, "train")
    (cells,) = figure.data
    assert (list(cells.y), list(cells.x)) == (["a", "b"], [0, 1])
    assert cells.customdata.tolist() == [[2, 2], [1, 4]]
    assert "nothing is known" in figures.heat_map(simple, "cosine").layout.annotations[0].text
    with pytest.raises(FedvitalsError, match="did you mean 'train'"):
        figures.heat_map(simple, "tran")


@pytest.mark.filterwarnings("error")
def test_absurd_numbers_are_drawn_as_the_largest(tmp_path: Path) -> None:
    """Losses beyond what a picture holds, and ones that are no number; without a warning."""
    losses = [1.0, 1e308, 1.7e308, float("inf"), float("nan")]
    records: list[Record] = [
        work("a", 0, 1, round=number, attempt=number)._replace(loss=loss) for number, loss in enumerate(losses)
    ]
    profile = profiled(tmp_path, [*records, *(a_round(number, 0, 1) for number in range(5))], end=1)
    (cells,) = figures.heat_map(profile, "loss").data
    largest = float(np.finfo(np.float32).max)
    np.testing.assert_array_equal(cells.customdata, np.array([[1, largest, largest, np.nan, np.nan]], np.float32))


@pytest.mark.parametrize("end", [0, None])
def test_a_run_without_anything_says_so(tmp_path: Path, end: float | None) -> None:
    """Each figure is there and tells why it is empty."""
    profile = profiled(tmp_path, [], end=end)
    drawn = [
        figures.breakdown(profile),
        figures.waterfall(profile, 0),
        figures.critical_path(profile),
        figures.critical_path(profile, 3),
        figures.heat_map(profile),
        figures.bytes_moved(profile),
        figures.learning(profile),
    ]
    with closing(SQLiteStore(tmp_path).open("last")) as reader:
        drawn += [figures.gradient_flow(reader), figures.memory(memory_profile(reader))]
    assert all(not figure.data and figure.layout.annotations[0].text for figure in drawn)


def test_rounds_without_length_and_without_clients_are_drawn(tmp_path: Path) -> None:
    """Nothing divides by nothing."""
    profile = profiled(tmp_path, [a_round(0, 1, 1), a_round(1, 1, 3), span(1, "aggregate", 1, 2, round=1)], end=3)
    assert _bars(figures.breakdown(profile))["aggregate"] == pytest.approx([0, 1])
    assert not figures.waterfall(profile, 0).data
    assert _bars(figures.waterfall(profile, 1))["aggregate"] == pytest.approx([1])
    assert not figures.critical_path(profile, 0).data


def test_what_strangers_named_is_text(tmp_path: Path) -> None:
    """Names of clients, layers and splits: no tag, no control character, nowhere in any figure."""
    write_run(tmp_path)
    hostile: list[Record] = [
        a_round(0, 0, 2),
        work(ATTACK, 0, 1, {"train": 1}),
        work(HOSTILE, 0, 2, {"train": 2}),
        Evaluation(0, 1, split="<b>test</b>", loss=1.0, accuracy=0.5),
    ]
    profile = profiled(tmp_path, hostile, end=2)
    drawn = [
        figures.waterfall(profile, 0),
        figures.critical_path(profile),
        figures.critical_path(profile, 0),
        figures.heat_map(profile),
        figures.learning(profile),
    ]
    for figure in drawn:
        text = figure.to_json()
        assert "<script" not in text.replace("\\u003c", "<")
        assert "<b>" not in text.replace("\\u003c", "<")
        assert "\\u001b" not in text
    assert plain(ATTACK, 60) == "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert "&lt;script" in figures.waterfall(profile, 0).to_json().replace("\\u0026", "&")


def test_a_client_called_by_a_number_is_called_a_client(tmp_path: Path) -> None:
    """And one called as the server is, is not the server."""
    records: list[Record] = [a_round(0, 0, 3), work("7", 0, 1), work("server", 1, 2), span(1, "aggregate", 2, 3)]
    profile = profiled(tmp_path, records, end=3)
    assert list(figures.waterfall(profile, 0).layout.yaxis.categoryarray) == ["server", "client 7", "server (2)"]
    assert set(figures.critical_path(profile).layout.yaxis.categoryarray) == {"server", "client 7", "server (2)"}


def test_names_that_look_alike_keep_their_rows() -> None:
    """Also when one is called as another would be renamed."""
    assert distinct(["a", "b", "a"]) == ["a", "b", "a (2)"]
    assert len(set(distinct(["a", "a", "a (2)"]))) == 3


def test_gradients_are_drawn_layer_by_layer(tmp_path: Path) -> None:
    """From the updates where no step was looked at, and it says which."""
    write_run(tmp_path)
    with closing(SQLiteStore(tmp_path).open("last")) as reader:
        figure = figures.gradient_flow(reader)
    assert list(figure.data[0].y) == ["net.weight", "net.bias"]
    assert list(figure.data[0].x) == [0, 1, 2]
    assert _title(figure).startswith("Updates across layers")
    assert "9 updates" in _title(figure)


def test_memory_is_drawn_over_time(tmp_path: Path) -> None:
    """With its peak in the title and the limit once it is near."""
    samples = [
        ResourceSample(place * 10**9, 1, rss, 900 * 10**6, 0.0, 1) for place, rss in enumerate((10**8, 9 * 10**8))
    ]
    run = Run("memory", "memory", Status.FINISHED, 0, ended_ns=2 * 10**9, environment={"memory_bytes": 10**9})
    with closing(SQLiteStore(tmp_path).create(run)) as journal:
        journal.append([run, *samples])
    with closing(SQLiteStore(tmp_path).open("last")) as reader:
        figure = figures.memory(memory_profile(reader))
    assert "900.0 MB at most" in _title(figure)
    assert list(figure.data[0].y) == pytest.approx([100, 900])
    assert figure.layout.shapes[0].y0 == pytest.approx(1000)


def test_a_thousand_clients_stay_light(tmp_path: Path) -> None:
    """However many clients and rounds there are, a figure has a bounded number of points, and says what it left out."""
    clients, rounds = 400, 500
    run = Run("big", "big", Status.FINISHED, 0, ended_ns=rounds * 65_000_000)
    with closing(SQLiteStore(tmp_path).create(run)) as journal:
        journal.append([run, *(Round(n, n, n * 65_000_000, (n + 1) * 65_000_000) for n in range(rounds))])
        journal.append([one._replace(attributed=0) for one in made_up.participations(40 * rounds, clients, cohort=40)])
        journal.append(
            [
                one._replace(round=3, attempt=9999, attributed=0)
                for one in made_up.participations(400, clients, cohort=400)
            ]
        )
    with closing(SQLiteStore(tmp_path).open("last")) as reader:
        profile = profile_of(reader)
    drawn = {
        "breakdown": figures.breakdown(profile),
        "heat map": figures.heat_map(profile),
        "waterfall": figures.waterfall(profile, 3),
        "bytes": figures.bytes_moved(profile),
        "path": figures.critical_path(profile),
        "learning": figures.learning(profile),
    }
    for name, figure in drawn.items():
        points = sum(np.size(trace.z if trace.type == "heatmap" else trace.x) for trace in figure.data)
        assert 0 < points < MOST_POINTS, name
    assert "each column is 3 rounds" in _title(drawn["breakdown"])
    assert "the 60 of 400 clients" in _title(drawn["heat map"])
    assert "the 40 of 440 that ended last" in _title(drawn["waterfall"])


def test_both_looks_have_the_same_parts() -> None:
    """Or a page that changes from light to dark would lose something."""
    light, dark = template()["layout"], template(dark=True)["layout"]
    assert light.keys() == dark.keys()
    assert light["paper_bgcolor"] != dark["paper_bgcolor"]
