"""The names that the library keeps under `transformer`."""

from .operations.attention import chunked_scaled_dot_product_attention, scaled_dot_product_attention
from .operations.delta_rule import chunk_gated_delta_rule

__all__ = ["chunk_gated_delta_rule", "chunked_scaled_dot_product_attention", "scaled_dot_product_attention"]
