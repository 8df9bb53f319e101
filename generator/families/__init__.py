"""The families that can be built. A new one is a file here and its name below."""

from __future__ import annotations

from generator.families import gemma2, gemma3, gpt_oss, llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe
from generator.families.family import Family

MODULES = (gemma2, gemma3, gpt_oss, llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe)
FAMILIES: dict[str, Family] = {one.FAMILY.name: one.FAMILY for one in MODULES}
