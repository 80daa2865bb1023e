"""Trains the recorded runs that the command line names anew, or all of them."""

import sys

from rlviz.runs.recordings import HERE, RECORDINGS, record
from rlviz.training.files import whole_file

if unknown := set(sys.argv[1:]) - {*RECORDINGS}:
    sys.exit(f"no recorded run is called {', '.join(sorted(unknown))}; there are {', '.join(RECORDINGS)}")
for name in sys.argv[1:] or RECORDINGS:
    path = HERE / f"{name}.json.gz"
    with whole_file(path) as temporary:
        temporary.write_bytes(record(RECORDINGS[name]))
    sys.stdout.write(f"{path}: {path.stat().st_size / 1000:.0f} kB\n")
