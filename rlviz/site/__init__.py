"""`rlviz site`: the explorers, recorded runs, algorithms, lessons and verdicts as static pages that need no server."""
