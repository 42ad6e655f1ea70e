"""Runs that nobody closes: the end of the interpreter does, and says how the program ended."""

from __future__ import annotations

import pytest
from watching import in_python, read

_UNCLOSED = """
import fedvitals, logging
def main():
    run = fedvitals.start("forgotten")
    with run.round(0):
        pass
main()
"""


@pytest.mark.parametrize(
    ("end", "status"),
    [("", "finished"), ("raise RuntimeError('at the end')", "failed"), ("raise SystemExit(0)", "finished")],
)
def test_a_forgotten_run_is_closed_at_the_end(end: str, status: str) -> None:
    """Even when nobody holds it any more; an exception that ended the program ended the run."""
    result = in_python(_UNCLOSED + end)
    assert (result.returncode != 0) == (status == "failed"), result.stderr
    with read() as reader:
        run = reader.run()
        assert run.status == status
        assert [one.number for one in reader.rounds()] == [0]
        assert run.health.get("error") == ("RuntimeError: at the end" if status == "failed" else None)
