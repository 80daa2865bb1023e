"""Trains the recorded runs that the command line names anew, or all of them."""

import sys

from rlviz.runs.recordings import HERE, RECORDINGS, write

if unknown := set(sys.argv[1:]) - {*RECORDINGS}:
    sys.exit(f"no recorded run is called {', '.join(sorted(unknown))}; there are {', '.join(RECORDINGS)}")
for name in sys.argv[1:] or RECORDINGS:
    path = write(name, HERE)
    sys.stdout.write(f"{path}: {path.stat().st_size / 1000:.0f} kB\n")
