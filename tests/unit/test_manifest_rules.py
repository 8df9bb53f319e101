"""Rules between the values of a manifest, with the exact message of each."""

from __future__ import annotations

import pytest

from generator.families import FAMILIES

from tests.support.manifests import read, refusal

GEOMETRY = [  # heads and widths that no tile holds
    (
        [("key_value_heads = 3", "key_value_heads = 4")],
        "m.toml:11: model.key_value_heads = 4: must divide the 9 query heads; nearest legal value 3",
    ),
    (
        [("query_heads = 9", "query_heads = 9\nhead_dim = 80")],
        "m.toml:11: model.head_dim = 80: must be a multiple of 32, a tile; nearest legal value 96",
    ),
    (
        [("query_heads = 9", "query_heads = 9\nhead_dim = 512")],
        "m.toml:11: model.head_dim = 512: must be at most 256; nearest legal value 256",
    ),
    (
        [("query_heads = 9", "query_heads = 12")],
        "m.toml:10: model.query_heads = 12: makes head_dim 48 (576 hidden / 12 query heads), which must "
        "be a multiple of 32 and at most 256; write head_dim = 64 or correct the heads",
    ),
    (
        [("hidden = 576", "hidden = 570\nhead_dim = 64")],
        "m.toml:7: model.hidden = 570: must be a multiple of 32, a tile; nearest legal value 576",
    ),
    (
        [("1536", "1500")],
        "m.toml:8: model.intermediate = 1500: must be a multiple of 32, a tile; nearest legal value 1504",
    ),
]

WRAPPERS = [  # models of images and text around the model
    (
        [('source = "a test"', 'source = "a test"\nwrapper = "mistral3"')],
        'm.toml:4: wrapper = "mistral3": holds no model of the family llama; write family = "mistral", or leave wrapper out',
    ),
    (
        [('source = "a test"', 'source = "a test"\nwrapper = "mistral"')],
        'm.toml:4: wrapper = "mistral": must be "gemma3" or "mistral3" or "qwen3_5" or "qwen3_5_moe"; did you mean '
        '"mistral3"? (known: gemma3, mistral3, qwen3_5, qwen3_5_moe)',
    ),
]

SHAPES = [  # lengths, chunks, waves and contexts that the planner could not use (B-05)
    (
        [("prefill_chunk = 1024", "prefill_chunk = 1000")],
        "m.toml:28: target.n150.prefill_chunk = 1000: must be a multiple of the alignment 128, lcm(32 "
        "block, 128 attention chunk); nearest legal value 1024\n"
        "m.toml:28: target.n150.prefill_chunk = 1000: must be the largest of lengths, 1024; write 1024 "
        "or add it to lengths",
    ),
    (
        [
            (
                "lengths = [128, 512, 1024]\nwaves = [1, 2, 4, 8]\nwave_tokens = 4096\nprefill_chunk = 1024",
                "lengths = [128, 1056]\nwaves = [1, 2, 4, 8]\nwave_tokens = 4096\nprefill_chunk = 1056",
            )
        ],
        "m.toml:28: target.n150.prefill_chunk = 1056: must be a multiple of the alignment 128, lcm(32 "
        "block, 128 attention chunk); nearest legal value 1024",
    ),
    (
        [("[128, 512, 1024]", "[100, 512, 1024]")],
        "m.toml:25: target.n150.lengths[0] = 100: must be a multiple of block_size 32; nearest legal value 96",
    ),
    (
        [("[128, 512, 1024]", "[128, 512, 1024, 8192]")],
        "m.toml:25: target.n150.lengths[3] = 8192: must be at most the context 4096; nearest legal value 4096\n"
        "m.toml:28: target.n150.prefill_chunk = 1024: must be the largest of lengths, 8192; write 8192 "
        "or add it to lengths",
    ),
    (
        [("context = 4096", "context = 992")],
        "m.toml:25: target.n150.lengths[2] = 1024: must be at most the context 992; nearest legal value 992",
    ),
    (
        [("[128, 512, 1024]", "[128, 512, 512, 1024]")],
        "m.toml:25: target.n150.lengths[2] = 512: must be over 512 before it: ascending, each once; "
        "write [128, 512, 1024]",
    ),
    (
        [("[128, 512, 1024]", "[512, 128, 512, 1024]")],
        "m.toml:25: target.n150.lengths[1] = 128: must be over 512 before it: ascending, each once; "
        "write [128, 512, 1024]",
    ),
    (
        [("block_size = 32", "block_size = 48")],
        "m.toml:23: target.n150.block_size = 48: must be one of 32, 64, 128; nearest legal value 32",
    ),
    (
        [("attention_chunk = 128", "attention_chunk = 96")],
        "m.toml:29: target.n150.attention_chunk = 96: must be a power of two; nearest legal value 64",
    ),
    (
        [("waves = [1, 2, 4, 8]", "waves = [1, 3]")],
        "m.toml:26: target.n150.waves[1] = 3: must be one of 1, 2, 4, 8, 16, 32; nearest legal value 2",
    ),
    (
        [("waves = [1, 2, 4, 8]", "waves = [1, 64]")],
        "m.toml:26: target.n150.waves[1] = 64: must be one of 1, 2, 4, 8, 16, 32; nearest legal value 32",
    ),
    (
        [("waves = [1, 2, 4, 8]", "waves = [2, 4]")],
        "m.toml:26: target.n150.waves = [2, 4]: must contain 1; write [1, 2, 4]",
    ),
    (
        [("waves = [1, 2, 4, 8]\nwave_tokens = 4096", "waves = [1, 2, 32]\nwave_tokens = 2048")],
        "m.toml:26: target.n150.waves[2] = 32: never runs: 32 x 128 tokens is over wave_tokens 2048; "
        "leave it out or write wave_tokens = 4096",
    ),
    (
        [("wave_tokens = 4096", "wave_tokens = 4096\nragged_tokens = [512, 256]")],
        "m.toml:28: target.n150.ragged_tokens[1] = 256: must be over 512 before it: ascending, each once; "
        "write [256, 512]",
    ),
    (
        [("wave_tokens = 4096", "wave_tokens = 4096\nragged_tokens = [256, 288]")],
        "m.toml:28: target.n150.ragged_tokens[1] = 288: must be a multiple of 256, 8 blocks of 32: so many rows share "
        "it; nearest legal value 256",
    ),
    (
        [("wave_tokens = 4096", "wave_tokens = 4096\nragged_tokens = [8192]")],
        "m.toml:28: target.n150.ragged_tokens[0] = 8192: must be at most wave_tokens 4096; nearest legal value 4096",
    ),
    (
        [("wave_tokens = 4096", "wave_tokens = 512")],
        "m.toml:27: target.n150.wave_tokens = 512: must hold one row of prefill_chunk 1024; nearest legal value 1024",
    ),
    (
        [("context = 4096", "context = 4100")],
        "m.toml:22: target.n150.context = 4100: must be a multiple of block_size 32; nearest legal value 4096",
    ),
    (
        [("context = 4096", "context = 16384")],
        "m.toml:22: target.n150.context = 16384: must be at most model.maximum_context 8192; nearest legal value 8192",
    ),
    (
        [("key_value_blocks = 512", "key_value_blocks = 64")],
        "m.toml:24: target.n150.key_value_blocks = 64: must hold one whole context: 64 x 32 = 2048 of "
        "4096 tokens; nearest legal value 128",
    ),
]

EXPERTS = "count = 8\nper_token = 2\nintermediate = 64\nrenormalise = true"
BUILT = ", ".join(FAMILIES)
ANOTHER_KIND = [  # models of another kind, by the name of what they need (S002-16)
    (
        [("layers = 30", "layers = 30\nnum_experts = 8")],
        "m.toml:10: model.num_experts = 8: asks for a mixture of experts, which is not built; families "
        f"built: {BUILT}",
    ),
    (
        [("[model.rope]", f"[model.experts]\n{EXPERTS}\n[model.rope]")],
        "m.toml:17: model.experts: belongs to families with experts, and llama is dense; leave the table out; "
        "families with experts: " + ", ".join(name for name, one in FAMILIES.items() if one.experts),
    ),
    (
        [("layers = 30", "layers = 30\nsliding_window = 4096")],
        "m.toml:10: model.sliding_window = 4096: family llama has none; leave it out; families that may have it: "
        + ", ".join(name for name, one in FAMILIES.items() if "sliding_window" in one.options),
    ),
    (
        [("layers = 30", "layers = 30\nattention_soft_cap = 50.0")],
        "m.toml:10: model.attention_soft_cap = 50.0: family llama has none; leave it out; families that may have it: gemma2",
    ),
    (
        [("layers = 30", "layers = 30\nembedding_scale = 24.0")],
        "m.toml:10: model.embedding_scale = 24.0: asks for a scale on the embedding, residual or logits, "
        f"which is not built; families built: {BUILT}",
    ),
    (
        [('"silu"', '"gelu"')],
        'm.toml:14: model.activation = "gelu": must be "silu" or "gelu_tanh"; did you mean "gelu_tanh"? (known: gelu_tanh, '
        "silu)",
    ),
    (
        [('"llama"', '"llama4"')],
        f'm.toml:2: family = "llama4": needs a mixture of experts of another kind, which is not built; built: {BUILT}',
    ),
    (
        [('"llama"', '"mamba"')],
        f'm.toml:2: family = "mamba": needs a recurrent state of another kind, which is not built; built: {BUILT}',
    ),
    (
        [('"llama"', '"lama"')],
        'm.toml:2: family = "lama": must be '
        + " or ".join(f'"{name}"' for name in FAMILIES)
        + f'; did you mean "llama"? (known: {BUILT})',
    ),
    (
        [('kind = "default"', 'kind = "dynamic"')],
        'm.toml:18: model.rope.kind = "dynamic": must be "default" or "linear" or "llama3" or "yarn" or "longrope"; '
        "known: default, linear, llama3, longrope, yarn",
    ),
    (
        [
            ('"llama"\nsource = "a test"', '"qwen3"\nsource = "a test"'),
            (
                'kind = "default"',
                'kind = "llama3"\nfactor = 8.0\nlow_frequency_factor = 1.0\nhigh_frequency_factor = 4.0\n'
                "original_context = 8192",
            ),
        ],
        'm.toml:18: model.rope.kind = "llama3": family qwen3 has no rotary embedding of this kind; known: default, '
        "linear, yarn",
    ),
    (
        [
            (
                'kind = "default"',
                'kind = "llama3"\nfactor = 8.0\nlow_frequency_factor = 4.0\nhigh_frequency_factor = 4.0',
            )
        ],
        "m.toml:17: model.rope.original_context: is missing; add it to [model.rope]: kind llama3 needs it\n"
        "m.toml:21: model.rope.high_frequency_factor = 4.0: must be over low_frequency_factor 4; "
        "published configurations have 1 and 4",
    ),
    (
        [('kind = "default"', 'kind = "default"\nfactor = 8.0')],
        "m.toml:19: model.rope.factor = 8.0: belongs to kinds linear, llama3 and yarn only; leave it out",
    ),
    (
        [('weights = "bfloat16"', 'weights = "bfloat8"')],
        'm.toml:32: target.n150.dtypes.weights = "bfloat8": must be "bfloat16" or "bfloat8_b" or '
        '"bfloat4_b"; did you mean "bfloat8_b"? (known: bfloat16, bfloat4_b, bfloat8_b)',
    ),
    (
        [('activation = "bfloat16"', 'activation = "float32"')],
        'm.toml:36: target.n150.dtypes.activation = "float32": is not built; only "bfloat16" is',
    ),
    (
        [("[target.n150]", "[target.n105]"), ("[target.n150.dtypes]", "[target.n105.dtypes]")],
        'm.toml:21: target.n105: no target of this name; did you mean "n150"? (known: n150, p150)',
    ),
]

ESCAPES = [  # strings that try to become code or to leave the folder
    (
        [('source = "a test"', 'source = "\\"\\"\\" + evil()"')],
        'm.toml:3: source = "\\"\\"\\" + evil()": must be one line of at most 300 printable characters '
        "without quotes, braces and backslashes; leave them out",
    ),
    (
        [('source = "a test"', 'source = """a\nimport os"""')],
        'm.toml:3: source = "a\\nimport os": must be one line of at most 300 printable characters without '
        "quotes, braces and backslashes; leave them out",
    ),
    (
        [('source = "a test"', "source = '{{ 7 * 7 }}'")],
        'm.toml:3: source = "{{ 7 * 7 }}": must be one line of at most 300 printable characters without '
        "quotes, braces and backslashes; leave them out",
    ),
    (
        [('source = "a test"', "source = '{% raw %}'")],
        'm.toml:3: source = "{% raw %}": must be one line of at most 300 printable characters without '
        "quotes, braces and backslashes; leave them out",
    ),
    (
        [('source = "a test"', 'source = "a\\u0000\\u202eb"')],
        'm.toml:3: source = "a\\u0000\\u202eb": must be one line of at most 300 printable characters '
        "without quotes, braces and backslashes; leave them out",
    ),
    (
        [('source = "a test"', "source = 'a\\b'")],
        'm.toml:3: source = "a\\\\b": must be one line of at most 300 printable characters without quotes, '
        "braces and backslashes; leave them out",
    ),
    (
        [('name = "m"', 'name = "../m"')],
        'm.toml:1: name = "../m": must be lower-case letters and digits with single dots and dashes '
        'between them, first a letter; for example "m"',
    ),
    (
        [('name = "m"', 'name = "/etc/passwd"')],
        'm.toml:1: name = "/etc/passwd": must be lower-case letters and digits with single dots and '
        'dashes between them, first a letter; for example "etc-passwd"',
    ),
    (
        [('name = "m"', 'name = "Llama 3"')],
        'm.toml:1: name = "Llama 3": must be lower-case letters and digits with single dots and dashes '
        'between them, first a letter; for example "llama"',
    ),
    (
        [('name = "m"', 'name = "class"')],
        'm.toml:1: name = "class": is a word of Python and names no module; for example "class-model"',
    ),
    (
        [("[target.n150]", '[weights]\npackage = "a; rm"\nfile = "../../x.gguf"\n[target.n150]')],
        'm.toml:22: weights.package = "a; rm": must be the name of an installable package; letters and '
        "digits with . _ - between them\n"
        'm.toml:23: weights.file = "../../x.gguf": must be a relative path with forward slashes that '
        "stays inside the package; folders and a file name, of letters, digits and . _ -",
    ),
    (
        [("[target.n150]", '[weights]\npackage = "a"\nfile = "/x.gguf"\n[target.n150]')],
        'm.toml:23: weights.file = "/x.gguf": must be a relative path with forward slashes that stays '
        "inside the package; folders and a file name, of letters, digits and . _ -",
    ),
]


@pytest.mark.parametrize(("changes", "message"), GEOMETRY)
def test_heads_and_widths_fill_tiles(changes: list[tuple[str, str]], message: str) -> None:
    assert refusal(*changes) == message


@pytest.mark.parametrize(("changes", "message"), WRAPPERS)
def test_a_wrapper_is_known_and_holds_models_of_the_family(changes, message: str) -> None:
    assert refusal(*changes) == message


@pytest.mark.parametrize(("changes", "message"), SHAPES)
def test_shapes_that_the_planner_cannot_use_are_refused_when_read_B_05(
    changes: list[tuple[str, str]], message: str
) -> None:
    """S000-02: a wave of 3 and a length over the prefill chunk among them."""
    assert refusal(*changes) == message


@pytest.mark.parametrize(("changes", "message"), ANOTHER_KIND)
def test_models_of_another_kind_are_refused_by_name_S002_16(changes: list[tuple[str, str]], message: str) -> None:
    """S002-01: a mixture of experts too, before any work."""
    assert refusal(*changes) == message


@pytest.mark.parametrize(("changes", "message"), ESCAPES)
def test_strings_never_become_code_or_leave_the_folder(changes: list[tuple[str, str]], message: str) -> None:
    assert refusal(*changes) == message


LINEAR, YARN, LONGROPE = (
    ('kind = "default"\ntheta = 100000.0', f"theta = 100000.0\n{numbers}")
    for numbers in (
        'kind = "linear"\nfactor = 8.0',
        'kind = "yarn"\nfactor = 4.0\noriginal_context = 2048\nbeta_fast = 32.0\nbeta_slow = 1.0\n'
        "truncate = true\nattention_factor = 1.14",
        'kind = "longrope"\noriginal_context = 2048\nattention_factor = 1.2\n'
        "short_factors = [1.0, 1.1, 1.2, 1.3]\nlong_factors = [1.5, 2.5, 3.5, 4.5]",
    )
)
PHI3 = [('"llama"', '"phi3"'), ("query_heads = 9", "query_heads = 9\nrotary_dimensions = 8"), LONGROPE]

ROTARY = [
    (
        [LINEAR, ("factor = 8.0", "")],
        "m.toml:17: model.rope.factor: is missing; add it to [model.rope]: kind linear needs it",
    ),
    (
        [LINEAR, ("factor = 8.0", "factor = 0.0")],
        "m.toml:20: model.rope.factor = 0.0: must be at least 1; nearest legal value 1",
    ),
    (
        [LINEAR, ("factor = 8.0", "factor = 8.0\nattention_factor = 1.0")],
        "m.toml:21: model.rope.attention_factor = 1.0: belongs to kinds yarn and longrope only; leave it out",
    ),
    (
        [YARN, ("truncate = true\n", "")],
        "m.toml:17: model.rope.truncate: is missing; add it to [model.rope]: kind yarn needs it",
    ),
    (
        [YARN, ("true\nattention", '"yes"\nattention')],
        'm.toml:24: model.rope.truncate = "yes": must be true or false, not a string',
    ),
    (
        [YARN, ("theta = 100000.0", "theta = 1.0")],
        "m.toml:18: model.rope.theta = 1.0: must be over 1 in kind yarn, which takes its logarithm; published "
        "configurations have 10000 and more",
    ),
    (
        [YARN, ("beta_fast = 32.0", "beta_fast = 1.0")],
        "m.toml:22: model.rope.beta_fast = 1.0: must be over beta_slow 1; published configurations have 1 and 32",
    ),
    (
        [YARN, ("beta_slow = 1.0", "beta_slow = -1.0")],
        "m.toml:23: model.rope.beta_slow = -1.0: must be at least 0.001; nearest legal value 0.001",
    ),
    (
        [YARN, ("attention_factor = 1.14", "attention_factor = nan")],
        "m.toml:25: model.rope.attention_factor = nan: must be finite; write a plain number",
    ),
    (
        [YARN, ("attention_factor = 1.14", "attention_factor = 0.0")],
        "m.toml:25: model.rope.attention_factor = 0.0: must be at least 0.001; nearest legal value 0.001",
    ),
    (
        [YARN, ("beta_slow", "low_frequency_factor = 1.0\nbeta_slow")],
        "m.toml:23: model.rope.low_frequency_factor = 1.0: belongs to kind llama3 only; leave it out",
    ),
    (
        [*PHI3, ("long_factors = [1.5, 2.5, 3.5, 4.5]", "")],
        "m.toml:18: model.rope.long_factors: is missing; add it to [model.rope]: kind longrope needs it",
    ),
    (
        [*PHI3, ("original_context = 2048\n", "")],
        "m.toml:18: model.rope.original_context: is missing; add it to [model.rope]: kind longrope needs it",
    ),
    (
        [*PHI3, ("3.5, 4.5]", "3.5]")],
        "m.toml:24: model.rope.long_factors = [1.5, 2.5, 3.5]: must have 4 entries, one for each pair of the 8 "
        "dimensions that turn, not 3; copy the list of the published configuration",
    ),
    (
        [*PHI3, ("rotary_dimensions = 8\n", "")],
        "m.toml:22: model.rope.short_factors = [1.0, 1.1, 1.2, 1.3]: must have 32 entries, one for each pair of the 64 "
        "dimensions that turn, not 4; copy the list of the published configuration\n"
        "m.toml:23: model.rope.long_factors = [1.5, 2.5, 3.5, 4.5]: must have 32 entries, one for each pair of the 64 "
        "dimensions that turn, not 4; copy the list of the published configuration",
    ),
    (
        [*PHI3, ("[1.0, 1.1", "[0.0, 1.1")],
        "m.toml:23: model.rope.short_factors[0] = 0.0: must be at least 0.001; nearest legal value 0.001",
    ),
    (
        [*PHI3, ("[1.0, 1.1", "[1.0, -1.1")],
        "m.toml:23: model.rope.short_factors[1] = -1.1: must be at least 0.001; nearest legal value 0.001",
    ),
    (
        [*PHI3, ("[1.5, 2.5, 3.5, 4.5]", "[]")],
        "m.toml:24: model.rope.long_factors = []: must have at least 1 entry, not 0; add the missing",
    ),
    (
        [*PHI3, ("[1.0, 1.1", '["1.0", 1.1')],
        'm.toml:23: model.rope.short_factors[0] = "1.0": must be a number, not a string; write 1.0',
    ),
    (
        [*PHI3, ("[1.5, 2.5, 3.5, 4.5]", "4.5")],
        "m.toml:24: model.rope.long_factors = 4.5: must be an array, not a float",
    ),
    (
        [*PHI3, ("attention_factor = 1.2", "attention_factor = 1.2\nfactor = 32.0")],
        "m.toml:23: model.rope.factor = 32.0: belongs to kinds linear, llama3 and yarn only; leave it out",
    ),
    (
        [('"llama"', '"phi3"'), YARN],
        'm.toml:19: model.rope.kind = "yarn": family phi3 has no rotary embedding of this kind; known: default, longrope',
    ),
    (
        [("query_heads = 9", "query_heads = 9\nrotary_dimensions = 32")],
        "m.toml:11: model.rotary_dimensions = 32: family llama turns whole heads, 64 dimensions; leave it out; families "
        "that turn a part of each head: " + ", ".join(name for name, one in FAMILIES.items() if one.partial_rotary),
    ),
    (
        [('"llama"', '"phi3"'), ("query_heads = 9", "query_heads = 9\nrotary_dimensions = 66")],
        "m.toml:11: model.rotary_dimensions = 66: must be at most head_dim 64; nearest legal value 64",
    ),
    (
        [('"llama"', '"phi3"'), ("query_heads = 9", "query_heads = 9\nrotary_dimensions = 47")],
        "m.toml:11: model.rotary_dimensions = 47: must be even, since dimensions turn in pairs; nearest legal value 46",
    ),
    (
        [('"llama"', '"phi3"'), ("query_heads = 9", "query_heads = 9\nrotary_dimensions = 0")],
        "m.toml:11: model.rotary_dimensions = 0: must be at least 2; nearest legal value 2",
    ),
    (
        [('"llama"', '"phi3"'), ("query_heads = 9", "query_heads = 9\npartial_rotary_factor = 0.5")],
        "m.toml:11: model.partial_rotary_factor = 0.5: unknown key; known: activation, attention_soft_cap, experts, "
        "full_attention_layers, gated_delta_net, head_dim, hidden, intermediate, key_value_heads, layer_kinds, layers, local_rope, "
        "logit_soft_cap, maximum_context, norm_epsilon, query_heads, query_scale, rope, rotary_dimensions, sliding_window, tied_"
        "embeddings, vocabulary",
    ),
]


@pytest.mark.parametrize(("changes", "message"), ROTARY)
def test_every_kind_of_rotary_embedding_states_its_own_numbers_and_no_other(
    changes: list[tuple[str, str]], message: str
) -> None:
    assert refusal(*changes) == message


def test_rotary_embeddings_of_every_kind_are_read() -> None:
    assert read(LINEAR).manifest.model.rope.factor == 8.0
    assert read(YARN).manifest.model.rope.truncate is True
    assert read(*PHI3).manifest.model.rope.long_factors == (1.5, 2.5, 3.5, 4.5)
    read(("query_heads = 9", "query_heads = 9\nrotary_dimensions = 64"))  # whole heads, in words


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3"])
def test_only_llama_has_the_llama3_rotary_embedding(family: str) -> None:
    numbers = "factor = 8.0\nlow_frequency_factor = 1.0\nhigh_frequency_factor = 4.0\noriginal_context = 8192"
    llama3 = ('kind = "default"', f'kind = "llama3"\n{numbers}')
    assert read(llama3).manifest.model.rope.factor == 8.0
    assert f"family {family} has no rotary embedding of this kind" in refusal(('"llama"', f'"{family}"'), llama3)


def test_values_at_their_limits_are_legal() -> None:
    table = read(
        ("context = 4096", "context = 1024"), ("key_value_blocks = 512", "key_value_blocks = 32")
    ).manifest.target
    assert table["n150"].context == max(table["n150"].lengths) == 32 * table["n150"].key_value_blocks
    read(("wave_tokens = 4096", "wave_tokens = 1024"), ("maximum_context = 8192", "maximum_context = 4096"))
