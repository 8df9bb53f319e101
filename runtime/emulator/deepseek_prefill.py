"""The names that the library keeps under `experimental.deepseek_prefill`."""

from .operations.combine import post_combine_reduce
from .operations.experts import moe_fused_swiglu

__all__ = ["moe_fused_swiglu", "post_combine_reduce"]
