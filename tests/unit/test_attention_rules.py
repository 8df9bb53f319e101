"""Windows, local rotary embeddings, scales and caps: what a manifest may state, and what becomes of it."""

from __future__ import annotations

import pytest

from generator import catalog
from generator.geometry import resolve
from generator.shapes import read_pages, window_pages
from generator.targets import load_board
from generator.twin import twin
from tests.support.manifests import read, refusal

N150 = load_board(catalog.BUILT_IN, "n150")
MISTRAL = ('"llama"', '"mistral"')
GEMMA3 = (('"llama"', '"gemma3"'), ('"silu"', '"gelu_tanh"'))
END = "tied_embeddings = true\n"
LOCAL = ("[target.n150]", '[model.local_rope]\nkind = "default"\ntheta = 5000.0\n\n[target.n150]')


def stating(*lines: str) -> tuple[str, str]:
    """More lines of [model]: the first stands on line 16."""
    return END, END + "".join(f"{line}\n" for line in lines)


WINDOW = stating("sliding_window = 1000", "full_attention_layers = [1, 3]")
REFUSED = [
    (
        [MISTRAL, stating("sliding_window = 1000")],
        "m.toml:5: model.full_attention_layers: is missing; add it to [model]: the layers without a window, from 0 on; [] for "
        "none",
    ),
    (
        [MISTRAL, stating("full_attention_layers = []")],
        "m.toml:16: model.full_attention_layers = []: belongs beside sliding_window: without one every layer sees all tokens "
        "before it; leave it out",
    ),
    (
        [MISTRAL, stating("sliding_window = 1000", "full_attention_layers = [1, 30]")],
        "m.toml:17: model.full_attention_layers[1] = 30: is no layer: there are 30, from 0 to 29; nearest legal value 29",
    ),
    (
        [MISTRAL, stating("sliding_window = 1000", "full_attention_layers = [-1]")],
        "m.toml:17: model.full_attention_layers[0] = -1: must be at least 0; nearest legal value 0",
    ),
    (
        [MISTRAL, stating("sliding_window = 1000", "full_attention_layers = [3, 1, 3]")],
        "m.toml:17: model.full_attention_layers[1] = 1: must be over 3 before it: ascending, each once; write [1, 3]",
    ),
    (
        [MISTRAL, ("layers = 30", "layers = 2"), stating("sliding_window = 1000", "full_attention_layers = [0, 1]")],
        "m.toml:17: model.full_attention_layers = [0, 1]: names every layer, so that none has a window; leave out "
        "full_attention_layers and sliding_window",
    ),
    (
        [MISTRAL, stating("sliding_window = 0", "full_attention_layers = []")],
        "m.toml:16: model.sliding_window = 0: must be at least 1; nearest legal value 1",
    ),
    (
        [MISTRAL, WINDOW, LOCAL],
        "m.toml:23: model.local_rope: family mistral has none; leave it out; families that may have it: gemma3",
    ),
    (
        [*GEMMA3, LOCAL],
        "m.toml:21: model.local_rope: turns the heads of layers with a window, and none has one; add sliding_window or leave it "
        "out",
    ),
    (
        [*GEMMA3, stating("sliding_window = 1000", "full_attention_layers = []"), LOCAL],
        "m.toml:17: model.full_attention_layers = []: names no layer, so that none is turned by [model.rope]; write the "
        "embedding of all layers as [model.rope]",
    ),
    (
        [*GEMMA3, WINDOW, (LOCAL[0], LOCAL[1].replace('"default"', '"linear"'))],
        "m.toml:23: model.local_rope.factor: is missing; add it to [model.local_rope]: kind linear needs it",
    ),
    (
        [stating("query_scale = 100")],
        "m.toml:16: model.query_scale = 100: family llama has none; leave it out; families that may have it: gemma2, gemma3",
    ),
    (
        [('"silu"', '"gelu_tanh"')],
        'm.toml:14: model.activation = "gelu_tanh": family llama has another activation; write "silu"',
    ),
    (
        [GEMMA3[0]],
        'm.toml:14: model.activation = "silu": family gemma3 has another activation; write "gelu_tanh"',
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_contradicts_itself_or_the_family_is_refused(changes: list[tuple[str, str]], message: str) -> None:
    assert refusal(*changes) == message


def test_a_window_is_resolved_with_the_kinds_of_layers_and_its_reach_before_a_chunk() -> None:
    found = resolve(read(MISTRAL, WINDOW), N150)
    assert found.kinds == ("sliding", "full")
    assert [layer for layer, kind in enumerate(found.layer_kinds) if kind == "full"] == [1, 3]
    assert found.window_reach == 1024  # 999 tokens before a token, in multiples of 128
    assert found.derivations["window_reach"] == "999 tokens before a token, in multiples of the alignment"
    exact = resolve(read(MISTRAL, stating("sliding_window = 1025", "full_attention_layers = []")), N150)
    assert (exact.kinds, exact.window_reach) == (("sliding",), 1024)
    assert resolve(read(MISTRAL, stating("sliding_window = 1", "full_attention_layers = []")), N150).window_reach == 0


def test_the_table_of_a_window_holds_the_chunk_and_the_reach_before_it_and_no_more_than_the_context() -> None:
    found = resolve(read(MISTRAL, WINDOW), N150)  # blocks of 32 in multiples of 8, attention chunks of 128
    assert [window_pages(found, tokens) for tokens in (128, 512, 1024)] == [40, 48, 64]
    short = (("context = 4096", "context = 1024"), ("key_value_blocks = 512", "key_value_blocks = 32"))
    near = resolve(read(MISTRAL, stating("sliding_window = 1000", "full_attention_layers = []"), *short), N150)
    assert {window_pages(near, tokens) for tokens in (512, 1024)} == {read_pages(near)} != {64}


def test_a_window_that_holds_the_context_of_a_target_is_none_there_unless_layers_turn_otherwise() -> None:
    wide = stating("sliding_window = 4096", "full_attention_layers = [1]")
    assert resolve(read(MISTRAL, wide), N150).kinds == ("full",)
    assert resolve(read(MISTRAL, wide), N150).digest == resolve(read(MISTRAL), N150).digest
    assert resolve(read(*GEMMA3, wide, LOCAL), N150).kinds == ("sliding", "full")


def test_scores_are_scaled_by_the_query_scale() -> None:
    found = resolve(read(*GEMMA3, stating("query_scale = 256")), N150)
    assert (found.attention_scale, found.derivations["attention_scale"]) == (0.0625, "256 ** -0.5, exact in float32")
    assert resolve(read(*GEMMA3), N150).attention_scale == 0.125


@pytest.mark.parametrize(
    "line", ["query_scale = 256", "logit_soft_cap = 30.0", "sliding_window = 1000\nfull_attention_layers = [1]"]
)
def test_each_option_changes_the_digest(line: str) -> None:
    assert resolve(read(*GEMMA3, stating(line)), N150).digest != resolve(read(*GEMMA3), N150).digest


@pytest.mark.parametrize(("full", "kept"), [("[1, 3]", (1,)), ("[]", ())])
def test_a_twin_has_one_layer_of_each_kind_and_a_window_that_ends_inside_a_block(
    full: str, kept: tuple[int, ...]
) -> None:
    small = resolve(twin(read(MISTRAL, stating("sliding_window = 1000", f"full_attention_layers = {full}"))), N150)
    assert (small.layers, small.full_attention_layers) == (2, kept)
    assert small.sliding_window % small.block_size and small.sliding_window < small.lengths[1] < small.context
