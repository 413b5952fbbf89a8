"""`python -m penstock.cli` is `penstock`."""

import sys

from penstock.cli.entry import main

sys.exit(main())
