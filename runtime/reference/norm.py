"""Root mean square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from runtime.tables import Geometry


def rms_norm(hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis (Zhang and Sennrich, 2019)."""
    return hidden * torch.rsqrt(hidden.square().mean(dim=-1, keepdim=True) + epsilon) * weight


def norm_weight(published: Tensor, geometry: Geometry) -> Tensor:
    """What a norm multiplies by: Gemma publishes its distance from one."""
    return 1 + published if geometry.unit_offset_norms else published
