"""python -m saywhich: the command line."""

import sys

from saywhich.cli import main

sys.exit(main())
