"""Attacks the page: `python -m tests.hostile`, with `--quick` the half minute of `make test`.

It starts the page on a free port over another folder, sends odd values to every handler, documented
or not, forged imports, uploads that are too large, damages rows of both databases, and fills the
disk. Each finding is printed with the call that shows it. Exit status: 0 if there is none."""

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.hostile.attacks import ATTACKS
from tests.hostile.page import Page
from tests.served import served


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the part that the tests run")
    parser.add_argument("--seed", type=int, default=0, help="of what is tried in which order")
    parser.add_argument(
        "--only", choices=[attack.__name__ for attack in ATTACKS], help="one attack"
    )
    args = parser.parse_args(arguments)
    random.seed(args.seed)
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as server:
        page = Page(server)
        for attack in ATTACKS:
            if args.only in (None, attack.__name__):
                began, before = time.monotonic(), len(page.findings)
                attack(page, args.quick)
                time.sleep(0.5)  # the log may come late
                page.read_log(attack.__name__)
                count = len(page.findings) - before
                print(
                    f"{attack.__name__}: {count} findings, {time.monotonic() - began:.0f} s",
                    flush=True,
                )
    return 1 if page.findings else 0


if __name__ == "__main__":
    # the server ends with this, and its disk
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
