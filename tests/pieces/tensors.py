"""Small tensors for the tests: float64 from lists, slopes, and random rollouts."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from hypothesis import given, settings, strategies as st


def double(values):
    return torch.as_tensor(values, dtype=torch.double)


def close(got, expected, rtol=1e-12, atol=1e-14):
    """Assert that a tensor is float64 and holds these numbers."""
    torch.testing.assert_close(got.detach(), double(expected), rtol=rtol, atol=atol)


def slope(function, at, *others):
    """Return the gradient of the sum of function(at, *others) with respect to `at`, zeros where there is none."""
    leaf = double(at).clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(leaf, *others).sum() + 0 * leaf.sum(), leaf)
    return gradient


def seeds(examples=25):
    """Run a test with so many random seeds."""
    return lambda test: settings(max_examples=examples, deadline=None)(given(seed=st.integers(0, 10_000))(test))


@dataclass(frozen=True)
class Rollout:
    """P groups of G responses: rewards, well_formed [P, G]; visits [P, G, i], rewards of earlier visits; all else [P, G, T]."""

    logp: torch.Tensor
    old_logp: torch.Tensor
    ref_logp: torch.Tensor
    values: torch.Tensor
    old_values: torch.Tensor
    entropy: torch.Tensor
    step_rewards: torch.Tensor
    step_ends: torch.Tensor
    mask: torch.Tensor
    rewards: torch.Tensor
    well_formed: torch.Tensor
    visits: torch.Tensor

    def over_tokens(self, change):
        """Return the rollout with every tensor of floats over tokens changed."""
        names = [f.name for f in fields(self) if getattr(self, f.name).shape == self.mask.shape]
        return self.replace(**{n: change(getattr(self, n)) for n in names if getattr(self, n).is_floating_point()})

    def permuted(self, order):
        """Return the rollout with the responses of each group in another order."""
        return Rollout(**{name: value[:, order] for name, value in vars(self).items()})

    def replace(self, **changes):
        return Rollout(**vars(self) | changes)

    @property
    def lengths(self):
        return self.mask.sum(-1)

    @property
    def outcomes(self):
        """Right or wrong."""
        return (self.rewards > 0.2).double()


def rollout(seed, prompts=2, group_size=3, width=5):
    """Return random numbers: ratios from e⁻³ to e⁷, masks with holes, now and then an empty response or an equal group."""
    random = torch.Generator().manual_seed(seed)
    groups = (prompts, group_size)
    shape = (*groups, width)

    def uniform(low, high, size=shape):
        return low + (high - low) * torch.rand(size, generator=random, dtype=torch.double)

    def rewards(*size):
        return torch.randint(0, 4, size, generator=random).double() / 5

    lengths = torch.randint(0, width + 1, groups, generator=random)
    mask = (torch.arange(width) < lengths.unsqueeze(-1)) & (uniform(0, 1) < 0.9)
    old_values = uniform(-1, 1)
    return Rollout(
        logp=uniform(-3, 0),
        old_logp=uniform(-3, 0) - 4 * (uniform(0, 1) < 0.1),
        ref_logp=uniform(-3, 0),
        values=old_values + uniform(-0.5, 0.5),
        old_values=old_values,
        entropy=uniform(0, 2),
        step_rewards=rewards(*shape),
        step_ends=mask & (uniform(0, 1) < 0.5),
        mask=mask,
        rewards=rewards(*groups),
        well_formed=(uniform(0, 1, groups) < 0.5).double(),
        visits=rewards(*groups, seed % 4),
    )
