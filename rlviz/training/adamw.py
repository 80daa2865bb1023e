"""AdamW (arXiv 1711.05101) without weight decay, as one operation of torch on all parameters.

torch.optim gives the same numbers by the same operation, but its first use imports torch's compiler: a second before the first
step, as long as torch itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class AdamW:
    """m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², θ ← θ − lr · m̂ / (√v̂ + ε), where m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ).

    Its names are those of torch.optim: defaults, param_groups (one), and of each parameter that has had a gradient
    state["step"] t, ["exp_avg"] m and ["exp_avg_sq"] v.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        self.defaults: dict[str, Any] = {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8}
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), **self.defaults}]
        self.state: defaultdict[nn.Parameter, dict[str, Tensor]] = defaultdict(dict)

    def zero_grad(self) -> None:
        """Set the gradients that there are to 0, in place: the next backward pass need not take room for them."""
        gradients = [parameter.grad for parameter in self.param_groups[0]["params"] if parameter.grad is not None]
        if gradients:
            torch._foreach_zero_(gradients)

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters that have a gradient."""
        (group,) = self.param_groups
        alike = defaultdict(list)  # the operation takes tensors of one kind
        for parameter in group["params"]:
            if parameter.grad is not None:
                alike[parameter.device, parameter.dtype].append(parameter)
        for parameters in alike.values():
            states = [self.state[parameter] or self.begin(parameter) for parameter in parameters]
            steps, averages, squares = ([state[name] for state in states] for name in ("step", "exp_avg", "exp_avg_sq"))
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                parameters,
                [parameter.grad for parameter in parameters],
                averages,
                squares,
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=0.0,
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    def begin(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """Return, and keep, the state of a parameter before its first step."""
        self.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        return self.state[parameter]
