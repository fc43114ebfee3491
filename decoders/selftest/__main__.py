"""`python -m decoders.selftest [SECTION]`."""

import sys

from decoders.selftest import main

sys.exit(main(sys.argv[1:]))
