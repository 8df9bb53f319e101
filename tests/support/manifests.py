"""A small legal manifest as text, and the message that a changed one is refused with."""

from __future__ import annotations

import pytest

from generator.errors import ManifestError
from generator.manifest import ModelFile, parse

TARGETS = ("n150", "p150")
TEXT = """\
name = "m"
family = "llama"
source = "a test"

[model]
vocabulary = 49152
hidden = 576
intermediate = 1536
layers = 30
query_heads = 9
key_value_heads = 3
maximum_context = 8192
norm_epsilon = 1e-05
activation = "silu"
tied_embeddings = true

[model.rope]
kind = "default"
theta = 100000.0

[target.n150]
context = 4096
block_size = 32
key_value_blocks = 512
lengths = [128, 512, 1024]
waves = [1, 2, 4, 8]
wave_tokens = 4096
prefill_chunk = 1024
attention_chunk = 128

[target.n150.dtypes]
weights = "bfloat16"
embedding = "bfloat16"
head = "bfloat16"
key_value = "bfloat16"
activation = "bfloat16"
"""


def changed(*changes: tuple[str, str]) -> str:
    """The text with pieces replaced, each of which must be in it."""
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def read(*changes: tuple[str, str]) -> ModelFile:
    return parse(changed(*changes), "m.toml", TARGETS)


def refusal(*changes: tuple[str, str]) -> str:
    with pytest.raises(ManifestError) as caught:
        read(*changes)
    return str(caught.value)
