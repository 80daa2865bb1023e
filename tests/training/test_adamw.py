"""Our AdamW is torch's, bit for bit."""

import torch

from rlviz.training.adamw import AdamW


def parameters(*dtypes):
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(5, 3, generator=generator).to(dtype)) for dtype in dtypes]


def test_steps_are_those_of_torch():
    dtypes = torch.float32, torch.float64, torch.float32
    ours, theirs = parameters(*dtypes), parameters(*dtypes)
    mine, other = AdamW(ours, 1e-2), torch.optim.AdamW(theirs, lr=1e-2, weight_decay=0.0, fused=True)
    generator = torch.Generator().manual_seed(1)
    for step in range(6):
        mine.zero_grad()
        other.zero_grad(set_to_none=False)
        for place, both in enumerate(zip(ours, theirs, strict=True)):
            if place == 2 and step < 2:  # it has no gradient yet, so its own count begins later
                continue
            gradient = torch.randn(5, 3, generator=generator)
            for parameter in both:
                parameter.grad = gradient.to(parameter.dtype)
        for optimizer in (mine, other):
            optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)
            optimizer.step()
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b)
            assert list(mine.state[a]) == list(other.state[b])
            assert all(torch.equal(value, other.state[b][name]) for name, value in mine.state[a].items())
    assert [int(mine.state[p]["step"]) for p in ours] == [6, 6, 4]
