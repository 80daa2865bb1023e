"""Makes the recorded runs that the command line names, or all that can be trained here; those of a real model as NAME=FOLDER."""

import sys

from rlviz.runs.recordings import HERE, RECORDINGS, RealRun, record
from rlviz.training.files import whole_file

wanted = sys.argv[1:] or [name for name, one in RECORDINGS.items() if not isinstance(one, RealRun)]
names = {name: folder for name, _, folder in (argument.partition("=") for argument in wanted)}
if unknown := set(names) - {*RECORDINGS}:
    sys.exit(f"no recorded run is called {', '.join(sorted(unknown))}; there are {', '.join(RECORDINGS)}")
for name, folder in names.items():
    recording = RECORDINGS[name]
    if isinstance(recording, RealRun) is not bool(folder):
        sys.exit(
            f"{name}: a real model's run is packed from its run folder, {name}=FOLDER, and any other is trained anew"
        )
    content = recording.record(folder) if isinstance(recording, RealRun) else record(recording)
    path = HERE / f"{name}.json.gz"
    with whole_file(path) as temporary:
        temporary.write_bytes(content)
    sys.stdout.write(f"{path}: {path.stat().st_size / 1000:.0f} kB\n")
