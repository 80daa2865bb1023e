"""The array type of every curve, and the way from a tensor to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def array(values: Tensor) -> NDArray[Any]:
    """Return a tensor's values as a flat array."""
    return values.detach().flatten().numpy()
