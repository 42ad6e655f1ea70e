"""`python -m fedvitals`: the command line."""

from __future__ import annotations

import sys

from fedvitals.show.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
