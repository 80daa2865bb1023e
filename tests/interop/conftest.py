"""The command line, as the tests of commands have it."""

from tests.cli.conftest import rlviz

__all__ = ["rlviz"]
