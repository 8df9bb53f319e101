"""The families that can be built. A new one is a file here and its name below."""

from __future__ import annotations

from generator.families import llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe
from generator.families.family import Family

FAMILIES: dict[str, Family] = {
    one.FAMILY.name: one.FAMILY for one in (llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe)
}
