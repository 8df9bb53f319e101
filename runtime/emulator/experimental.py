"""The names that the library keeps under `experimental`."""

from . import deepseek_prefill, kda
from .operations.cache import paged_fill_cache
from .operations.heads import nlp_concat_heads, nlp_create_qkv_heads
from .operations.minimal_matmul import dit_minimal_matmul_addcmul_fused, minimal_matmul
from .operations.rotary import rotary_embedding_hf, rotary_embedding_llama

__all__ = [
    "deepseek_prefill",
    "dit_minimal_matmul_addcmul_fused",
    "kda",
    "minimal_matmul",
    "nlp_concat_heads",
    "nlp_create_qkv_heads",
    "paged_fill_cache",
    "rotary_embedding_hf",
    "rotary_embedding_llama",
]
