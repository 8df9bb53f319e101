"""The names that the library keeps under `experimental`."""

from .operations.cache import paged_fill_cache
from .operations.heads import nlp_concat_heads, nlp_create_qkv_heads
from .operations.rotary import rotary_embedding_hf, rotary_embedding_llama

__all__ = [
    "nlp_concat_heads",
    "nlp_create_qkv_heads",
    "paged_fill_cache",
    "rotary_embedding_hf",
    "rotary_embedding_llama",
]
