"""Start servers of other engines with the embedded pair, until Ctrl-C.

    python -m tools.engines.serve vllm vllm-draft

Prints their addresses as WORKBENCH_ENGINES takes them. `make engines` installs the engines.
"""

import argparse
import signal
import sys
import time
from contextlib import ExitStack

from tools.engines.places import Places
from tools.engines.servers import SERVERS, running


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=SERVERS, metavar="NAME")
    names = parser.parse_args().names
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # servers end then, too
    with ExitStack() as stack:
        found = [
            f"{name}={stack.enter_context(running(SERVERS[name](Places())))}" for name in names
        ]
        print(f'WORKBENCH_ENGINES="{"; ".join(found)}"', flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            print("Ending them.", flush=True)


if __name__ == "__main__":
    main()
