"""The algorithms, one file a paper."""

from __future__ import annotations

from rlviz.algorithms.base import GroupPolicyGradient, changes
from rlviz.algorithms.grpo import GRPO
from rlviz.names import closest

ALGORITHMS: tuple[GroupPolicyGradient, ...] = (GRPO,)


def command_name(algorithm: GroupPolicyGradient) -> str:
    """Return the algorithm's name as typed on the command line: Dr.GRPO → dr-grpo."""
    return algorithm.name.lower().replace(".", "-").replace(" ", "-")


def find_algorithm(name: str) -> GroupPolicyGradient:
    """Return the algorithm with this command-line name; raises ValueError that offers the nearest names."""
    known = {command_name(algorithm): algorithm for algorithm in ALGORITHMS}
    return known[closest("algorithm", name, list(known))]


__all__ = ["ALGORITHMS", "GRPO", "GroupPolicyGradient", "changes", "command_name", "find_algorithm"]
