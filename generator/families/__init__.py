"""The families that can be built. A new one is a file here and its name below."""

from __future__ import annotations

from generator.families import gemma2, gemma3, llama, mistral, phi3, qwen2, qwen3
from generator.families.family import Family

FAMILIES: dict[str, Family] = {one.FAMILY.name: one.FAMILY for one in (gemma2, gemma3, llama, mistral, phi3, qwen2, qwen3)}
