"""The names that the library keeps under `transformer`."""

from .operations.attention import chunked_scaled_dot_product_attention, scaled_dot_product_attention

__all__ = ["chunked_scaled_dot_product_attention", "scaled_dot_product_attention"]
