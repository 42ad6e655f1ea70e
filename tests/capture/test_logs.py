"""Logs: kept with run, round and client, without getting in the way of the user's own logging."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator

import pytest
from watching import in_python, read, round_of, started

from fedvitals.capture import logs
from fedvitals.capture.context import NOWHERE, current
from fedvitals.vocabulary import LogEntry


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """One that takes all levels."""
    one = logging.getLogger("mine")
    one.setLevel(logging.DEBUG)
    yield one
    one.setLevel(logging.NOTSET)


def kept(name: str = "last") -> list[LogEntry]:
    with read(name) as reader:
        return reader.logs()


def test_records_are_kept_with_where_they_came_from(logger: logging.Logger) -> None:
    """Run, round and client of the thread that logged; arguments filled in; levels below the setting left out."""
    with started() as run:
        logger.info("at the start, %s", 1)
        with run.round(4) as rnd:
            logger.warning("in the round")
            with rnd.client("7"):
                logger.error("in the client")
                logger.debug("too low")
            logger.info("after the client")
        logger.info("after the round")
    logger.error("after the run")
    assert [(e.message, e.level, e.logger, e.round, e.client) for e in kept()] == [
        ("at the start, 1", "INFO", "mine", None, None),
        ("in the round", "WARNING", "mine", 4, None),
        ("in the client", "ERROR", "mine", 4, "7"),
        ("after the client", "INFO", "mine", 4, None),
        ("after the round", "INFO", "mine", None, None),
    ]


def test_the_least_level_is_a_setting(logger: logging.Logger) -> None:
    """What lies below it is not kept; a thread that says nothing of a run may be any run's."""

    def talk() -> None:
        for level in (10, 20, 30, 40):
            logger.log(level, str(level))

    with started(log_level="DEBUG", name="all"), started(log_level="ERROR", name="few"):
        thread = threading.Thread(target=talk)
        thread.start()
        thread.join(30)
    assert [e.message for e in kept("all")] == ["10", "20", "30", "40"]
    assert [e.message for e in kept("few")] == ["40"]


def test_tracebacks_are_kept(logger: logging.Logger) -> None:
    """Of `exc_info`, bounded from the front: the end is what one looks for."""
    with started():
        try:
            raise ValueError("x" * 50_000)
        except ValueError:
            logger.exception("it broke")
        logger.error("no exception here", exc_info=True)
    first, second = kept()
    assert (first.message, second.message) == ("it broke", "no exception here")
    assert first.traceback is not None
    assert len(first.traceback) == 32_768
    assert first.traceback.endswith("x\n")
    assert second.traceback in (None, "NoneType: None\n")


@pytest.mark.parametrize(
    ("message", "arguments", "expected"),
    [("%d", ("text",), "%d"), ("%s %s", (1,), "%s %s"), ("x" * 10_000, (), "x" * 8_192), ("\ud800", (), "\\ud800")],
)
def test_any_message_is_kept_or_cut(
    message: str, arguments: tuple[object, ...], expected: str, logger: logging.Logger
) -> None:
    """Arguments that do not fit, texts that are too long, half characters."""
    logger.propagate = False
    with started():
        logger.warning(message, *arguments)
    logger.propagate = True
    assert [e.message for e in kept()] == [expected]


def test_what_the_user_set_up_is_left_alone() -> None:
    """Our tap is no handler: `basicConfig` still works, and unhandled warnings are still printed, with a run open."""
    code = """
import logging, fedvitals
with fedvitals.start("t"):
    logging.getLogger("mine").warning("unhandled")
    print(len(logging.getLogger().handlers))
    logging.basicConfig(level=logging.INFO, format="configured %(message)s")
    logging.getLogger("mine").info("handled")
"""
    result = in_python(code)
    assert result.stdout == "0\n"
    assert result.stderr.splitlines() == ["unhandled", "configured handled"]
    assert [e.message for e in kept()] == ["unhandled", "handled"]


def test_a_users_own_fields_are_no_clash(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    """`extra={"client": ...}` is the user's; we put nothing onto their records."""
    with round_of() as rnd, rnd.client("ours"):
        logger.warning("with extra", extra={"client": "theirs", "round": 9, "run": "r"})
    assert caplog.records[0].__dict__["client"] == "theirs"
    assert [(e.client, e.round) for e in kept()] == [("ours", 0)]


def test_the_tap_goes_with_the_last_run() -> None:
    """In whatever order runs end; a factory that was put around it is left as it is."""
    before = logging.getLogRecordFactory()
    first, second = started(), started()
    assert logging.getLogRecordFactory() is not before
    first.close()
    second.close()
    assert logging.getLogRecordFactory() is before
    run = started()
    inner = logging.getLogRecordFactory()

    def theirs(*args: object, **kwargs: object) -> logging.LogRecord:
        return inner(*args, **kwargs)

    logging.setLogRecordFactory(theirs)
    try:
        run.close()
        assert logging.getLogRecordFactory() is theirs
        with started(name="again"):
            logging.getLogger("mine").warning("once")
        assert logging.getLogRecordFactory() is theirs
    finally:
        logging.setLogRecordFactory(before)
    assert [e.message for e in kept("again")] == ["once"]


def test_a_log_call_from_within_a_handler_does_not_go_round_in_circles(logger: logging.Logger) -> None:
    """A handler that logs makes one more record, and that is that."""

    class Chatty(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.msg != "inner":
                logger.warning("inner")

    chatty = Chatty()
    logger.addHandler(chatty)
    with started():
        logger.warning("outer")
    logger.removeHandler(chatty)
    assert [e.message for e in kept()] == ["outer", "inner"]


def test_a_log_call_from_within_our_own_keeping_is_not_kept_again(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever logs while a record is being kept would otherwise never end."""
    with started() as run:
        emit = run.recorder.emit

        def chatty(*args: object) -> None:
            logger.warning("while keeping")
            emit(*args)  # type: ignore[arg-type]  # passed on as they come

        with monkeypatch.context() as patched:
            patched.setattr(run.recorder, "emit", chatty)
            logger.warning("outer")
    assert [e.message for e in kept()] == ["outer"]


def test_json_lines_say_where_they_come_from(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    """One object a line, for machines that collect logs; the handler goes with the run."""
    with started(log_format="json") as run, run.round(2) as rnd, rnd.client("7"):
        logger.warning("hello\nworld")
        try:
            raise KeyError("k")
        except KeyError:
            logger.exception("broke")
    logger.warning("after")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert [line["message"] for line in lines] == ["hello\nworld", "broke"]
    assert {key: lines[0][key] for key in ("run", "round", "client", "level", "logger")} == {
        "run": run.id,
        "round": 2,
        "client": "7",
        "level": "WARNING",
        "logger": "mine",
    }
    assert "KeyError" in lines[1]["traceback"]


def test_rich_lines_are_labelled(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    """With round and client; what looks like markup is text."""
    with started(log_format="rich") as run:
        logger.warning("[red]outside[/red]")
        with run.round(2) as rnd, rnd.client("7"):
            logger.warning("inside")
    text = capsys.readouterr().err
    assert "[round 2 client 7] inside" in text
    assert "[red]outside[/red]" in text
    assert "[round" not in text.split("outside")[0]


def test_threads_are_labelled_by_their_own_sessions(logger: logging.Logger) -> None:
    """A client's session in a thread labels that thread's logs and no others."""
    together = threading.Barrier(3)

    def work(client: int) -> None:
        with rnd.client(client):
            together.wait(30)
            logger.warning("of %s", client)
            together.wait(30)

    with round_of(number=5) as rnd:
        threads = [threading.Thread(target=work, args=(client,)) for client in range(2)]
        for thread in threads:
            thread.start()
        together.wait(30)
        logger.warning("of nobody")
        together.wait(30)
        for thread in threads:
            thread.join(30)
    assert {(e.message, e.round, e.client) for e in kept()} == {
        ("of 0", 5, "0"),
        ("of 1", 5, "1"),
        ("of nobody", 5, None),
    }


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_sessions_that_overlap_label_logs_in_whatever_order_they_end(
    order: tuple[int, ...], logger: logging.Logger
) -> None:
    """Each record is of a client that is at work; after the last of them nobody is."""
    with started(log_level="INFO") as run:
        sessions = [run.client(number) for number in range(3)]
        for session in sessions:
            session.__enter__()
        for number in order:
            logger.info("at work")
            sessions[number].__exit__(None, None, None)
        logger.info("the server")
    at_work = [max(order[done:]) for done in range(3)]
    assert [entry.client for entry in kept()] == [*map(str, at_work), None]
    assert current() == NOWHERE


def test_a_session_that_ends_in_another_thread_leaves_no_label_behind(logger: logging.Logger) -> None:
    """Neither where it began nor where it was closed, which is busy with what it was busy with."""
    with started(log_level="INFO") as run, run.round(4):
        session = run.client("begun here")
        session.__enter__()

        def close() -> None:
            with run.client("of the thread"):
                session.__exit__(None, None, None)
                logger.info("in the thread")

        thread = threading.Thread(target=close)
        thread.start()
        thread.join()
        logger.info("in the round")
    assert [(entry.round, entry.client) for entry in kept()] == [(4, "of the thread"), (4, None)]


def test_nothing_of_the_tap_is_left() -> None:
    """After the last run the module holds no tap."""
    with started():
        assert logs._tap is not None
    assert logs._tap is None
