"""The names that the library keeps under `experimental.deepseek_prefill`."""

from .operations.experts import moe_fused_swiglu, post_combine_reduce

__all__ = ["moe_fused_swiglu", "post_combine_reduce"]
