"""One trial of a sweep, in a process of its own: `python -m fedvitals.show.cli.trial JOB.json --dir FOLDER` prints the
run's id. It is no command of the command line."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from fedvitals.errors import EXIT_BAD_INPUT, FedvitalsError
from fedvitals.settings import resolve
from fedvitals.train.job import Job


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("--dir", required=True)
    args = parser.parse_args()
    from fedvitals.train.engine import train

    try:
        result = train(Job.from_dict(json.loads(args.job.read_text())), settings=resolve(flags={"dir": args.dir}))
    except FedvitalsError as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_INPUT
    print(result.run_id)
    return 0


if __name__ == "__main__":
    sys.exit(main())
