"""`fedvitals report`: one page with everything on it that asks the network for nothing, seen by a real browser."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser, started
from recorded import HOSTILE, write_run
from scripted import a_round, ns, span, work

import fedvitals
from fedvitals.run import NotRecorded, Run
from fedvitals.show.cli.main import main
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Evaluation, Failure, Layer, Layout, Outcome, Record, Status, UpdateBlock
from fedvitals.vocabulary import Run as RunRecord

Capture = pytest.CaptureFixture[str]
ATTACK = "<script>alert(1)</script>"
BREAKOUT = "</script><img src=x onerror=alert(2)>\"'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real one, for all tests of this file."""
    with started() as found:
        yield found


def _write(folder: Path, records: list[Record], name: str = "scripted") -> None:
    run = RunRecord("scripted", "scripted", Status.FINISHED, 0, ended_ns=ns(10))
    with closing(SQLiteStore(folder).create(run)) as journal:
        journal.append(
            [replace(run, name=name), *records]
        )  # a store would not begin a run of any name; a file may hold it


def _page(folder: Path, to: Path) -> str:
    assert main(["report", "last", "--dir", str(folder), "-o", str(to)]) == 0
    return to.read_text(encoding="utf-8")


def _hostile() -> list[Record]:
    """Names and messages that are HTML, everywhere where a stranger may write."""
    import numpy as np

    layout = Layout(1, (Layer(BREAKOUT, (2, 3), "float32", 6, True), Layer(ATTACK, (2,), "float32", 2, True)))
    return [
        layout,
        UpdateBlock(1, 0, 1, np.ones((2, 2, 6), np.float32)),
        a_round(0, 0, 10),
        span(1, "select", 0, 1),
        work(ATTACK, 1, 9, {"train": 8}, outcome=Outcome.FAILED),
        work(BREAKOUT, 1, 10, {"train": 9}),
        Failure(ns(9), "train", ATTACK, f"{BREAKOUT}\n{ATTACK}", 0, ATTACK, 0),
        Evaluation(0, ns(10), split=ATTACK, loss=1.0, accuracy=0.5),
    ]


def test_the_page_is_whole_and_asks_nobody(tmp_path: Path, capsys: Capture) -> None:
    """Verdict first, then tables and figures; plotly.js is in it once, and no element loads anything."""
    write_run(tmp_path / "runs")
    page = _page(tmp_path / "runs", tmp_path / "r.html")
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r".*r\.html written, \d\.\d MB: it opens in any browser, without a network\n", said.err)
    headings = re.findall(r"<h2[^>]*>([^<]+)</h2>", page)
    assert headings[:2] == ["Verdict", "Where the time went"]
    assert {"Clients and rounds", "How it learned", "Bytes"} <= set(headings)
    assert page.count("plotly.js v") == 1
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert "FL101 client raised" in markup
    assert re.findall(r"(?:src|href|action|data)\s*=\s*[\"']?\s*(?:https?:|//)", markup) == []
    assert "default-src 'none'" in markup
    assert markup.count("<caption>") == markup.count("<table>")


def test_a_browser_draws_it_without_a_single_request(tmp_path: Path, browser: Browser) -> None:
    """Every figure is there, in light and dark; nothing is fetched, forbidden or broken; it fits a telephone."""
    write_run(tmp_path / "runs")
    path = tmp_path / "r.html"
    page = _page(tmp_path / "runs", path)
    places = page.count('class="plot"')
    assert places >= 6
    for width, dark in ((1100, False), (400, True)):
        with browser.opened(path, width=width, dark=dark) as seen:
            assert (seen.requests, seen.trouble) == ([path.resolve().as_uri()], [])
            assert seen.page.locator(".plot .main-svg").count() >= places
            assert seen.page.locator(".plot[role=img][aria-label]").count() == places
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
            colour = seen.page.evaluate("getComputedStyle(document.querySelector('.plot .main-svg')).backgroundColor")
            assert (colour == "rgb(255, 255, 255)") is not dark


def test_what_strangers_wrote_stays_text_in_a_browser(tmp_path: Path, browser: Browser) -> None:
    """A client, a layer, a message, a split and the run itself are called by HTML: it is shown, and nothing runs."""
    _write(tmp_path / "runs", _hostile(), name=ATTACK)
    with closing(SQLiteStore(tmp_path / "runs").open("last")) as reader:
        assert reader.clients() == [ATTACK, BREAKOUT]
    path = tmp_path / "r.html"
    page = _page(tmp_path / "runs", path)
    assert ATTACK not in page
    assert "<img" not in page
    with browser.opened(path) as seen:
        assert (seen.dialogs, seen.trouble, len(seen.requests)) == ([], [], 1)
        assert seen.page.locator("th", has_text=ATTACK).count() >= 1
        assert seen.page.locator("article", has_text=ATTACK).count() >= 1
        assert seen.page.locator("img").count() == 0
        assert seen.page.locator("h1").inner_text() == ATTACK
        assert seen.page.title().startswith(ATTACK)
        assert seen.page.locator("svg text", has_text="<script>").count() >= 1


def test_a_script_that_got_in_would_not_run(tmp_path: Path, browser: Browser) -> None:
    """The policy knows our scripts by their hashes: the test above does not hold by escaping alone."""
    write_run(tmp_path / "runs")
    path = tmp_path / "r.html"
    page = _page(tmp_path / "runs", path)
    path.write_text(
        page.replace("<main>", "<main><script>alert(3)</script><img src=x onerror=alert(4)>"), encoding="utf-8"
    )
    with browser.opened(path) as seen:
        assert seen.dialogs == []
        assert any("Content Security Policy" in one for one in seen.trouble)


@pytest.mark.parametrize("records", [[], [a_round(0, 0, 3), span(1, "aggregate", 1, 2)]], ids=["empty", "no clients"])
def test_a_run_with_little_in_it_has_a_page(records: list[Record], tmp_path: Path, browser: Browser) -> None:
    """It says what is missing."""
    _write(tmp_path / "runs", records)
    path = tmp_path / "r.html"
    page = _page(tmp_path / "runs", path)
    assert re.search(r"no (round and no )?client was recorded", page)
    with browser.opened(path, drawn=bool(records)) as seen:
        assert (seen.trouble, len(seen.requests)) == ([], 1)
        assert seen.page.locator("h1").inner_text() == "scripted"


def test_the_page_prints_on_paper(tmp_path: Path, browser: Browser) -> None:
    """A dark screen gives no black paper, and a wide one no figure that the paper cuts off."""
    write_run(tmp_path / "runs")
    path = tmp_path / "r.html"
    _page(tmp_path / "runs", path)
    with browser.opened(path, dark=True) as seen:
        seen.page.emulate_media(media="print", color_scheme="dark")
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        seen.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        colour = "getComputedStyle(document.querySelector('.plot .main-svg')).backgroundColor"
        assert seen.page.evaluate(colour) == "rgb(255, 255, 255)"
        assert seen.page.evaluate("document.querySelector('.plot .main-svg').clientWidth") < 700


def test_programs_get_the_file_and_its_size(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without -o the page is named after the run, where one stands; what was there is replaced."""
    write_run(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits-1.html").write_text("old")
    assert main(["report", "last", "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (document["schema_version"], document["file"], document["run"]["id"]) == (1, "digits-1.html", "digits-1")
    assert document["size_bytes"] == (tmp_path / "digits-1.html").stat().st_size > 10**6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits-1.html", "runs"]


def test_where_it_cannot_be_written_is_said_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    """Exit code 2, and nothing half-written is left behind."""
    write_run(tmp_path / "runs")
    (tmp_path / "folder").mkdir()
    for target, reason in ((tmp_path / "no" / "r.html", "No such file"), (tmp_path / "folder", "it is a folder")):
        assert main(["report", "last", "-o", str(target)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"fedvitals: -o {target}: {reason}")
        assert said.count("\n") == 1
    assert main(["report", "nope", "-o", str(tmp_path / "r.html")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "runs"]


def test_a_page_is_made_without_torch(tmp_path: Path) -> None:
    """On a machine that never trains; so is a trace."""
    write_run(tmp_path / "runs")
    code = "import sys; from fedvitals.show.cli.main import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    for words in (("report", "last"), ("export", "last", "--to", "perfetto")):
        command = (sys.executable, "-c", code, *words, "-o", str(tmp_path / "made"))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "False\n"


def test_a_run_reports_while_it_goes_on_and_after(tmp_path: Path) -> None:
    """`run.report` gives the path of a whole page."""
    with fedvitals.start("asked", resources_every_s=0.0) as run:
        with run.round(0) as rnd, rnd.client(HOSTILE):
            pass
        assert run.report(tmp_path / "during.html") == tmp_path / "during.html"
    assert run.report(str(tmp_path / "after.html")) == tmp_path / "after.html"
    assert "running" in (tmp_path / "during.html").read_text(encoding="utf-8")
    assert "finished, 1 round" in (tmp_path / "after.html").read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written_does_not_stop_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning, however often it is asked for; a run that is not recorded has no page."""
    with fedvitals.start("asked", resources_every_s=0.0) as run, caplog.at_level(logging.WARNING, "fedvitals"):
        assert isinstance(run, Run)
        assert [run.report(tmp_path / "no" / "r.html") for _ in range(3)] == [None] * 3
    assert [record.getMessage() for record in caplog.records if "report" in record.getMessage()] == [
        f"fedvitals could not record in report: FedvitalsError: -o {tmp_path}/no/r.html: No such file or directory; "
        "the training goes on"
    ]
    monkeypatch.setenv("FEDVITALS_MODE", "off")
    off = fedvitals.start("off")
    assert isinstance(off, NotRecorded)
    assert off.report(tmp_path / "off.html") is None
    assert not (tmp_path / "off.html").exists()
