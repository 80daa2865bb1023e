"""Several processes that train one model together: what all gather, and the part of it that is a process's own.

A rollout is gathered whole, every process computes the same advantages from it, and each keeps the rows that it trains on.
With one process each of these does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from rlviz.training.updates import Updates

COPIES = ("NO", "MULTI_CPU", "MULTI_GPU")  # of accelerate's kinds: every process has the whole model, as DDP keeps it
SIDES = {"prompt_ids": "left", "prompt_mask": "left"}  # of padding; of all else it is the right
T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """The processes of an accelerate.Accelerator. Every method is called in all of them, or in none."""

    accelerator: Any

    def check(self) -> None:
        """Raise ValueError for several processes that are not copies of one model."""
        kind = getattr(self.accelerator.distributed_type, "value", self.accelerator.distributed_type)
        parallel = getattr(self.accelerator, "parallelism_config", None)
        if self.count > 1 and (kind not in COPIES or getattr(parallel, "non_data_parallel_size", 1) > 1):
            raise ValueError(
                "carried trains in several processes where each has the whole model (DDP), and was never tried with a model cut "
                f"into parts, as by DeepSpeed and FSDP; got {self.count} processes of {kind}"
            )

    @property
    def count(self) -> int:
        """How many there are."""
        return self.accelerator.num_processes

    @property
    def main(self) -> bool:
        """Whether this is the one that writes."""
        return self.accelerator.is_main_process

    def listed(self, own: Sequence[T]) -> list[T]:
        """Return the lists of all processes, one after the other."""
        if self.count == 1:
            return list(own)
        from accelerate.utils import gather_object

        return gather_object(list(own))

    def stacked(self, own: Tensor) -> Tensor:
        """Return the rows of all processes; each has as many."""
        return own if self.count == 1 else self.accelerator.gather(own)

    def own(self, rows: int) -> slice:
        """Return which of so many rows are this process's."""
        share, rank = rows // self.count, self.accelerator.process_index
        return slice(rank * share, (rank + 1) * share)

    def shared_out(self, rows: Sequence[dict[str, Any]], size: int) -> list[dict[str, Any]]:
        """Return this process's part of these groups of `size` rows. The last group is repeated until all have as many."""
        if self.count == 1:
            return list(rows)
        whole = [dict(row) for row in rows]
        while len(whole) % self.count:
            whole += [dict(row) for row in rows[-size:]]
        return whole[self.own(len(whole))]

    def whole(self, output: dict[str, Any], rounds: Sequence[tuple[int, int]], pad: int) -> dict[str, Any]:
        """Return the rollout of all processes: its rows round by round, in the order in which `shared_out` cut them.

        output: this process's. rounds: of each, how many rows a process had, and how many of all were asked for.
        """
        if self.count == 1:
            return output
        rows, start, order = sum(share for share, _ in rounds), 0, []
        for share, asked in rounds:
            places = [rank * rows + start + row for rank in range(self.count) for row in range(share)]
            order += places[:asked]
            start += share

        def gathered(name: str, value: Tensor) -> Tensor:
            if value.dim() > 1:
                fill, left = pad if name.endswith("_ids") else 0, SIDES.get(name) == "left"
                value = self.accelerator.pad_across_processes(value, dim=1, pad_index=fill, pad_first=left)
            return self.accelerator.gather(value)[torch.tensor(order, device=value.device)]

        return {name: gathered(name, value) if value.dim() else value for name, value in output.items()}

    def summed(self, numbers: Sequence[float]) -> list[float]:
        """Return the sums over all processes, equal to the last bit in each."""
        if self.count == 1:
            return list(numbers)
        own = torch.tensor(numbers, dtype=torch.double, device=self.accelerator.device)
        return self.accelerator.gather(own.unsqueeze(0)).sum(0).tolist()

    def updates(self, own: Updates) -> Updates:
        """Return what happened in the updates of all processes. The loss of each is its part, times their number."""
        if self.count == 1:
            return own
        rows, tokens, *sums = self.summed([own.rows, own.tokens, *own.sums])
        losses = [loss / self.count for loss in sums[:2]]
        return replace(own, rows=int(rows), tokens=int(tokens), sums=(*losses, *sums[2:]))

    def of_main(self, value: T) -> T:
        """Return what the main process has."""
        if self.count == 1:
            return value
        from accelerate.utils import broadcast_object_list

        told = [value]
        broadcast_object_list(told)
        return told[0]

    def on_main(self, act: Callable[[], T]) -> T | None:
        """Return what act() returns in the main process, None in others. What it raises stops all of them."""
        if self.count == 1:
            return act()
        made: T | None = None
        error: Exception | None = None
        if self.main:
            try:
                made = act()
            except Exception as raised:
                error = raised
        told = self.of_main(None if error is None else str(error))
        if error is not None:
            raise error
        if told is not None:
            raise RuntimeError(told)
        return made
