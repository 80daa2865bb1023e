"""`python -m rlviz` is `rlviz`."""

from rlviz.cli import main

main()
