"""The names that the library keeps under `experimental.kda`."""

from .operations.causal_convolution import qkv_causal_conv1d_silu
from .operations.gated_norm import sigmoid_gated_rms_norm

__all__ = ["qkv_causal_conv1d_silu", "sigmoid_gated_rms_norm"]
