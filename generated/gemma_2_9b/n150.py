"""Prefill of gemma-2-9b on n150. Written by codegen, do not edit.

Rebuild:   codegen build gemma-2-9b --target n150
Manifest:  models/gemma-2-9b.toml
Geometry:  5d7670b218fa01d1

    42 layers of 3584 hidden and 14336 intermediate, 16 query and 8 key-value heads of 256, 256000 vocabulary
    1024 tokens of context, 32 key-value blocks of 32 tokens
    bfloat8_b weights, bfloat8_b keys and values, bfloat16 activations

    variant          rows            tokens a row
    single           1               32 128 256 512 768 1024
    batched          2 4 8           32 128
    batched          2 4             256
    batched          2               512
"""

from runtime.backend import ttnn
from runtime.tables import REPLICATE, Board, Geometry, Input, Places, Rope, Shape, Store, Weight

# --- constants: geometry, precision, memory and compute -------------------------------------------------------------

MODEL = "gemma-2-9b"
TARGET = "n150"

VOCABULARY = 256000  # model.vocabulary
HIDDEN = 3584  # model.hidden
INTERMEDIATE = 14336  # model.intermediate
LAYERS = 42  # model.layers
QUERY_HEADS = 16  # model.query_heads
KEY_VALUE_HEADS = 8  # model.key_value_heads
HEAD_DIM = 256  # model.head_dim
QUERY_WIDTH = 4096  # 16 query heads x 256
QUERY_KEY_VALUE_WIDTH = 8192  # (16 query + 2 x 8 key-value heads) x 256
NORM_EPSILON = 1e-06  # model.norm_epsilon
ROTARY_STYLE = "half_split"  # model.head_dim
ATTENTION_SOFT_CAP = 50.0  # model.attention_soft_cap
LOGIT_SOFT_CAP = 30.0  # model.logit_soft_cap

TILE = 32
ROW_SLOTS = TILE  # last rows that one pass can pick: one tile of rows
TOP_K = 32  # candidates that sampling draws from: one tile of columns
CONTEXT = 1024  # target.n150.context
BLOCK_SIZE = 32  # target.n150.block_size
KEY_VALUE_BLOCKS = 32  # target.n150.key_value_blocks
PREFILL_CHUNK = 1024  # target.n150.prefill_chunk
ALIGNMENT = 1024  # context: attention over the caches takes no soft cap, so that every row runs from its start

GEOMETRY = Geometry(
    vocabulary=256000,
    hidden=HIDDEN,
    intermediate=14336,
    layers=LAYERS,
    query_heads=16,
    key_value_heads=8,
    head_dim=HEAD_DIM,
    norm_epsilon=NORM_EPSILON,
    query_key_value_bias=False,
    query_key_norm=False,
    tied_embeddings=True,
    rope=Rope(
        kind="default",
        theta=10000.0,
        dimensions=256,
    ),
    fused_projections=False,
    activation="gelu_tanh",
    query_scale=256,
    attention_soft_cap=ATTENTION_SOFT_CAP,
    logit_soft_cap=LOGIT_SOFT_CAP,
    sandwich_norms=True,
    unit_offset_norms=True,
    scaled_embedding=True,
)
BOARD = Board(
    name="n150",
    architecture="wormhole_b0",
    grid=(8, 8),
    dram_banks=12,
    dram_bank_bytes=1072693184,
    dram_alignment=32,
    l1_bank_bytes=1393312,
    l1_limit=1499136,
)

ACTIVATION_DTYPE = ttnn.bfloat16  # target.n150.dtypes.activation
WEIGHT_DTYPE = ttnn.bfloat8_b  # target.n150.dtypes.weights
EMBEDDING_DTYPE = ttnn.bfloat16  # target.n150.dtypes.embedding
HEAD_DTYPE = ttnn.bfloat8_b  # target.n150.dtypes.head
KEY_VALUE_DTYPE = ttnn.bfloat8_b  # target.n150.dtypes.key_value
HEADS_DTYPE = KEY_VALUE_DTYPE  # as the caches hold them, so that no cast follows
NORM_DTYPE = ttnn.bfloat16  # as published
ROTARY_DTYPE = ttnn.bfloat16  # the one type that both rotary operations take
DRAM = ttnn.DRAM_MEMORY_CONFIG
L1 = ttnn.L1_MEMORY_CONFIG
TILED = ttnn.TILE_LAYOUT
ROW_MAJOR = ttnn.ROW_MAJOR_LAYOUT

NORM_COMPUTE = ttnn.WormholeComputeKernelConfig(  # a small part of a pass
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
ROTARY_COMPUTE = ttnn.WormholeComputeKernelConfig(  # a small part of a pass
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
MATMUL_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b weights
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
HEAD_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b head
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
ATTENTION_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b keys and values
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)

# --- tables: the closed set of passes and their programs ------------------------------------------------------------

WAVES = (1, 2, 4, 8)  # target.n150.waves
LENGTHS = (32, 128, 256, 512, 768, 1024)  # target.n150.lengths

# variant, rows, tokens a row, fill pages, read pages (to the padded end of any chunk), rows for the head, body digest
TRACES = (
    Shape("single", 1, 32, 1, 0, "last", "be8e09f30ea3b275"),
    Shape("single", 1, 128, 4, 0, "last", "80e5563fcbb54b53"),
    Shape("single", 1, 256, 8, 0, "last", "a2413595bff9e5f7"),
    Shape("single", 1, 512, 16, 0, "last", "06dadcfdf8dd2474"),
    Shape("single", 1, 768, 24, 0, "last", "05a6be394fef66ee"),
    Shape("single", 1, 1024, 32, 0, "last", "a6f4685c00d4ef00"),
    Shape("batched", 2, 32, 2, 0, "last", "97d0e34164f53f65"),
    Shape("batched", 4, 32, 4, 0, "last", "be45fb8f1d174696"),
    Shape("batched", 8, 32, 8, 0, "last", "7c806fe986dc8a7b"),
    Shape("batched", 2, 128, 8, 0, "last", "1e5329a77f1ae2aa"),
    Shape("batched", 4, 128, 16, 0, "last", "9d221d28e8e5198d"),
    Shape("batched", 8, 128, 32, 0, "last", "e0d0db0f322bd34c"),
    Shape("batched", 2, 256, 16, 0, "last", "b286aa0921fe9f76"),
    Shape("batched", 4, 256, 32, 0, "last", "d4ebfa656aca3912"),
    Shape("batched", 2, 512, 32, 0, "last", "8013b9ec89aeca04"),
)
SAMPLING = ("logits", "argmax", "top_k")
PROGRAMS = tuple((shape.digest, ending) for shape in TRACES for ending in SAMPLING)


def multicast_2d(columns, rows, inner, subblock_m, subblock_n, block_m, block_n, core_m, core_n, together=True):
    """Rows of cores share tokens and columns of cores share output columns; all but the grid counts tiles."""
    return ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(columns, rows),
        in0_block_w=inner,
        out_subblock_h=subblock_m,
        out_subblock_w=subblock_n,
        out_block_h=block_m,
        out_block_w=block_n,
        per_core_M=core_m,
        per_core_N=core_n,
        transpose_mcast=False,
        fused_activation=None,
        fuse_batch=together,
    )


def multicast_1d(columns, rows, inner, subblock_m, subblock_n, block_m, block_n, core_m, core_n, together=True):
    """Every core holds all tokens and a slice of the output columns; all but the grid counts tiles."""
    return ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(columns, rows),
        in0_block_w=inner,
        out_subblock_h=subblock_m,
        out_subblock_w=subblock_n,
        out_block_h=block_m,
        out_block_w=block_n,
        per_core_M=core_m,
        per_core_N=core_n,
        fuse_batch=together,
        fused_activation=None,
        mcast_in0=True,
    )


# (role, tiles of tokens in the pass): how the matmul is cut over the cores
MATMULS = {
    ("query_key_value", 1): multicast_1d(8, 8, 8, 1, 2, 1, 4, 1, 4),
    ("query_key_value", 2): multicast_1d(8, 8, 8, 1, 4, 2, 4, 2, 4),
    ("query_key_value", 4): multicast_1d(8, 8, 8, 1, 4, 4, 4, 4, 4),
    ("query_key_value", 8): multicast_1d(8, 8, 8, 1, 4, 8, 4, 8, 4),
    ("query_key_value", 16): multicast_2d(8, 8, 8, 1, 4, 2, 32, 2, 32),
    ("query_key_value", 24): multicast_2d(8, 8, 8, 1, 4, 3, 32, 3, 32),
    ("query_key_value", 32): multicast_2d(8, 8, 8, 1, 4, 4, 16, 4, 32),
    ("attention_output", 1): multicast_1d(8, 8, 8, 1, 1, 1, 2, 1, 2),
    ("attention_output", 2): multicast_1d(8, 8, 8, 1, 2, 2, 2, 2, 2),
    ("attention_output", 4): multicast_1d(8, 8, 8, 2, 2, 4, 2, 4, 2),
    ("attention_output", 8): multicast_2d(8, 8, 8, 1, 3, 1, 15, 1, 15),
    ("attention_output", 16): multicast_2d(8, 8, 8, 1, 4, 2, 16, 2, 16),
    ("attention_output", 24): multicast_2d(8, 8, 8, 1, 4, 3, 16, 3, 16),
    ("attention_output", 32): multicast_2d(8, 8, 8, 1, 4, 4, 16, 4, 16),
    ("gate_up", 1): multicast_1d(8, 8, 8, 1, 4, 1, 8, 1, 8),
    ("gate_up", 2): multicast_1d(8, 8, 8, 1, 4, 2, 8, 2, 8),
    ("gate_up", 4): multicast_1d(8, 8, 8, 1, 4, 4, 8, 4, 8),
    ("gate_up", 8): multicast_1d(8, 8, 8, 1, 4, 8, 8, 8, 8),
    ("gate_up", 16): multicast_2d(8, 8, 7, 1, 4, 2, 28, 2, 56),
    ("gate_up", 24): multicast_2d(8, 8, 8, 1, 4, 3, 28, 3, 56),
    ("gate_up", 32): multicast_2d(8, 8, 7, 1, 4, 4, 28, 4, 56),
    ("down", 1): multicast_1d(8, 8, 8, 1, 1, 1, 2, 1, 2),
    ("down", 2): multicast_1d(8, 8, 8, 1, 2, 2, 2, 2, 2),
    ("down", 4): multicast_1d(8, 8, 8, 2, 2, 4, 2, 4, 2),
    ("down", 8): multicast_2d(8, 8, 8, 1, 3, 1, 15, 1, 15),
    ("down", 16): multicast_2d(8, 8, 8, 1, 4, 2, 16, 2, 16),
    ("down", 24): multicast_2d(8, 8, 8, 1, 4, 3, 16, 3, 16),
    ("down", 32): multicast_2d(8, 8, 8, 1, 4, 4, 16, 4, 16),
    ("head", 1): multicast_1d(8, 8, 7, 1, 3, 1, 63, 1, 126),
}

# tokens a row: how scores are cut, and their product with the values; one key-value head after another
SCORES = {
    32: (
        multicast_2d(8, 2, 8, 1, 1, 1, 1, 1, 1, together=False),
        multicast_2d(8, 2, 1, 1, 1, 1, 1, 1, 1, together=False),
    ),
    128: (
        multicast_2d(8, 8, 8, 1, 1, 1, 1, 1, 1, together=False),
        multicast_2d(8, 8, 4, 1, 1, 1, 1, 1, 1, together=False),
    ),
    256: (
        multicast_2d(8, 8, 8, 1, 1, 2, 1, 2, 1, together=False),
        multicast_2d(8, 8, 8, 1, 1, 2, 1, 2, 1, together=False),
    ),
    512: (
        multicast_2d(8, 8, 8, 2, 2, 4, 2, 4, 2, together=False),
        multicast_2d(8, 8, 8, 1, 1, 4, 1, 4, 1, together=False),
    ),
    768: (
        multicast_2d(8, 8, 8, 1, 3, 6, 3, 6, 3, together=False),
        multicast_2d(8, 8, 8, 1, 1, 6, 1, 6, 1, together=False),
    ),
    1024: (
        multicast_2d(8, 8, 8, 1, 4, 8, 4, 8, 4, together=False),
        multicast_2d(8, 8, 8, 1, 1, 8, 1, 8, 1, together=False),
    ),
}

# tiles of tokens in the pass: where a layer's intermediates lie, in the order normed, heads, attended, gated
PLACES = {
    1: Places(L1, L1, L1, L1),
    2: Places(L1, L1, L1, L1),
    4: Places(L1, L1, L1, L1),
    8: Places(L1, L1, L1, L1),
    16: Places(L1, L1, L1, L1),
    24: Places(L1, L1, L1, DRAM),
    32: Places(L1, L1, L1, DRAM),
}

# --- weights and stores: every long-lived device tensor -------------------------------------------------------------

HIDDEN_NORM = (1, 1, HIDDEN // TILE, TILE)  # the row-major form that rms_norm takes: rows of one tile's width

WEIGHTS = (
    Weight(
        "embedding",
        ("model.embed_tokens.weight",),
        "scaled_rows",
        (VOCABULARY, HIDDEN),
        EMBEDDING_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight("rotary_cos", (), "rotary_cos", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("rotary_sin", (), "rotary_sin", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("final_norm", ("model.norm.weight",), "capped_offset_norm", HIDDEN_NORM, NORM_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("head", ("model.embed_tokens.weight",), "projection", (HIDDEN, VOCABULARY), HEAD_DTYPE, TILED, REPLICATE),
    Weight("causal_mask", (), "causal_mask", (1, 1, PREFILL_CHUNK, PREFILL_CHUNK), ACTIVATION_DTYPE, TILED, REPLICATE),
)
LAYER_WEIGHTS = (
    Weight(
        "attention_norm",
        ("model.layers.{layer}.input_layernorm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "query_key_value",
        (
            "model.layers.{layer}.self_attn.q_proj.weight",
            "model.layers.{layer}.self_attn.k_proj.weight",
            "model.layers.{layer}.self_attn.v_proj.weight",
        ),
        "scored_projection",
        (HIDDEN, QUERY_KEY_VALUE_WIDTH),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "attention_output",
        ("model.layers.{layer}.self_attn.o_proj.weight",),
        "projection",
        (QUERY_WIDTH, HIDDEN),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "attention_output_norm",
        ("model.layers.{layer}.post_attention_layernorm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "mlp_norm",
        ("model.layers.{layer}.pre_feedforward_layernorm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "gate",
        ("model.layers.{layer}.mlp.gate_proj.weight",),
        "projection",
        (HIDDEN, INTERMEDIATE),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "up",
        ("model.layers.{layer}.mlp.up_proj.weight",),
        "projection",
        (HIDDEN, INTERMEDIATE),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "down",
        ("model.layers.{layer}.mlp.down_proj.weight",),
        "projection",
        (INTERMEDIATE, HIDDEN),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "mlp_output_norm",
        ("model.layers.{layer}.post_feedforward_layernorm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
)

BLOCKS = (KEY_VALUE_BLOCKS, KEY_VALUE_HEADS, BLOCK_SIZE, HEAD_DIM)
STORES = (
    Store("keys", LAYERS, BLOCKS, KEY_VALUE_DTYPE, TILED, REPLICATE),
    Store("values", LAYERS, BLOCKS, KEY_VALUE_DTYPE, TILED, REPLICATE),
)

# --- inputs: the host values of a pass and when a replay copies them again ------------------------------------------


def packed_inputs(shape):
    """Rows lie back to back in one sequence: tokens, positions, the blocks to fill, the rows that reach the head."""
    packed = shape.rows * shape.tokens
    return (
        Input("tokens", (1, packed), ttnn.uint32, "always"),
        Input("positions", (1, packed), ttnn.uint32, "always"),
        Input("fill_table", (1, shape.fill_pages), ttnn.int32, "always"),
        Input("last_rows", (1, ROW_SLOTS), ttnn.uint32, "changed"),
    )


INPUTS = {
    "single": packed_inputs,
    "batched": packed_inputs,
}
SAMPLING_INPUTS = (
    Input("top_k", (ROW_SLOTS,), ttnn.uint32, "changed"),
    Input("top_p", (ROW_SLOTS,), ttnn.bfloat16, "changed"),
    Input("inverse_temperature", (ROW_SLOTS,), ttnn.bfloat16, "changed"),
)

# --- body: one pass; a tensor dies with its last name, and is deallocated where the name would outlive its use ------


def embed(tokens, weights):
    """Token ids [1, tokens] -> hidden [1, 1, tokens, HIDDEN]."""
    hidden = ttnn.embedding(tokens, weights.embedding, layout=TILED, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    return ttnn.unsqueeze_to_4D(hidden)


def rotary(positions, weights):
    """Positions [1, tokens] -> their rows of the cosine and sine tables, each [1, 1, tokens, HEAD_DIM]."""
    cos = ttnn.embedding(positions, weights.rotary_cos, layout=TILED, dtype=ROTARY_DTYPE, memory_config=DRAM)
    sin = ttnn.embedding(positions, weights.rotary_sin, layout=TILED, dtype=ROTARY_DTYPE, memory_config=DRAM)
    return ttnn.unsqueeze_to_4D(cos), ttnn.unsqueeze_to_4D(sin)


def causal_mask(weights, shape):
    """Added to the scores of full layers, [1, 1, tokens, tokens]: a corner of the mask of a whole chunk."""
    return ttnn.slice(weights.causal_mask, (0, 0, 0, 0), (1, 1, shape.tokens, shape.tokens), memory_config=DRAM)


def rotate_halves(heads, cos, sin, place):
    """Turn the first half of each head against the second, as published weights are laid out."""
    return ttnn.experimental.rotary_embedding_hf(
        heads, cos, sin, is_decode_mode=False, memory_config=place.heads, compute_kernel_config=ROTARY_COMPUTE
    )


def mix(query, key, value, mask, shape):
    """softmax(cap * tanh(scores / cap) + mask) times the values, of heads [rows, heads, tokens, HEAD_DIM] -> [rows, 1,
    tokens, QUERY_WIDTH]. Scores are explicit, since no attention operation takes a soft cap; queries were scaled and
    divided by the cap when their projection was loaded.
    """
    product, mixture = SCORES[shape.tokens]
    by_group = (shape.rows, KEY_VALUE_HEADS, QUERY_HEADS // KEY_VALUE_HEADS * shape.tokens)
    by_head = (shape.rows, QUERY_HEADS, shape.tokens)
    scores = ttnn.linear(
        ttnn.reshape(query, (*by_group, HEAD_DIM)),
        key,
        transpose_b=True,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=product,
        compute_kernel_config=ATTENTION_COMPUTE,
    )
    capped = ttnn.mul(
        scores,
        ATTENTION_SOFT_CAP,
        input_tensor_a_activations=[ttnn.UnaryOpType.TANH],
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
    )
    ttnn.deallocate(scores)
    masked = ttnn.add(ttnn.reshape(capped, (*by_head, shape.tokens)), mask, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(capped)
    shares = ttnn.softmax(masked, dim=-1, memory_config=DRAM, compute_kernel_config=NORM_COMPUTE, numeric_stable=True)
    ttnn.deallocate(masked)
    mixed = ttnn.linear(
        ttnn.reshape(shares, (*by_group, shape.tokens)),
        value,
        dtype=ACTIVATION_DTYPE,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=mixture,
        compute_kernel_config=ATTENTION_COMPUTE,
    )
    ttnn.deallocate(shares)
    return ttnn.experimental.nlp_concat_heads(
        ttnn.reshape(mixed, (*by_head, HEAD_DIM)), memory_config=PLACES[shape.token_tiles].attended
    )


def attend_single(query, key, value, mask, shape):
    """One row over its own keys and values, which are all in the pass: [1, 1, tokens, QUERY_WIDTH]."""
    return mix(query, key, value, mask, shape)


def batch_of_rows(heads, count, shape):
    """Heads [1, count, rows x tokens, HEAD_DIM] of a packed wave -> [rows, count, tokens, HEAD_DIM]."""
    return ttnn.transpose(
        ttnn.reshape(heads, (count, shape.rows, shape.tokens, HEAD_DIM)),
        0,
        1,
        memory_config=PLACES[shape.token_tiles].heads,
    )


def back_to_back(attended, shape):
    """A batch of rows [rows, 1, tokens, QUERY_WIDTH] -> a packed wave [1, 1, rows x tokens, QUERY_WIDTH]."""
    return ttnn.reshape(attended, (1, 1, shape.rows * shape.tokens, QUERY_WIDTH))


def attend_batched(query, key, value, mask, shape):
    """A wave of rows as a batch, so that each row meets its own keys alone."""
    queries = batch_of_rows(query, QUERY_HEADS, shape)
    keys = batch_of_rows(key, KEY_VALUE_HEADS, shape)
    values = batch_of_rows(value, KEY_VALUE_HEADS, shape)
    mixed = mix(queries, keys, values, mask, shape)
    ttnn.deallocate(queries)
    ttnn.deallocate(keys)
    ttnn.deallocate(values)
    return back_to_back(mixed, shape)


ATTEND = {
    "single": attend_single,
    "batched": attend_batched,
}


def attention(hidden, cos, sin, layer, key_cache, value_cache, inputs, shape, mask):
    """Add the self-attention of one layer to hidden [1, 1, tokens, HIDDEN], which is used up; fill its caches."""
    place = PLACES[shape.token_tiles]
    normed = ttnn.rms_norm(
        hidden,
        epsilon=NORM_EPSILON,
        weight=layer.attention_norm,
        memory_config=place.normed,
        compute_kernel_config=NORM_COMPUTE,
    )
    query_key_value = ttnn.linear(
        normed,
        layer.query_key_value,
        dtype=HEADS_DTYPE,
        memory_config=place.heads,
        program_config=MATMULS["query_key_value", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    ttnn.deallocate(normed)
    query, key, value = ttnn.experimental.nlp_create_qkv_heads(
        query_key_value,
        num_heads=QUERY_HEADS,
        num_kv_heads=KEY_VALUE_HEADS,
        transpose_k_heads=False,
        memory_config=place.heads,
    )
    ttnn.deallocate(query_key_value)
    query = rotate_halves(query, cos, sin, place)
    key = rotate_halves(key, cos, sin, place)
    ttnn.experimental.paged_fill_cache(key_cache, key, inputs.fill_table, batch_idx=0)
    ttnn.experimental.paged_fill_cache(value_cache, value, inputs.fill_table, batch_idx=0)
    attended = ATTEND[shape.variant](query, key, value, mask, shape)
    ttnn.deallocate(query)
    ttnn.deallocate(key)
    ttnn.deallocate(value)
    projected = ttnn.linear(
        attended,
        layer.attention_output,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["attention_output", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    ttnn.deallocate(attended)
    projected = ttnn.rms_norm(
        projected,
        epsilon=NORM_EPSILON,
        weight=layer.attention_output_norm,
        memory_config=DRAM,
        compute_kernel_config=NORM_COMPUTE,
    )
    summed = ttnn.add(hidden, projected, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(hidden)
    return summed


def mlp(hidden, layer, shape):
    """Add the gated feed-forward of one layer, down(gelu(gate(x)) * up(x)), to hidden, which is used up."""
    place = PLACES[shape.token_tiles]
    normed = ttnn.rms_norm(
        hidden,
        epsilon=NORM_EPSILON,
        weight=layer.mlp_norm,
        memory_config=place.normed,
        compute_kernel_config=NORM_COMPUTE,
    )
    gate = ttnn.linear(
        normed,
        layer.gate,
        dtype=ACTIVATION_DTYPE,
        memory_config=place.gated,
        program_config=MATMULS["gate_up", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    up = ttnn.linear(
        normed,
        layer.up,
        dtype=ACTIVATION_DTYPE,
        memory_config=place.gated,
        program_config=MATMULS["gate_up", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    ttnn.deallocate(normed)
    gated = ttnn.mul(
        gate,
        up,
        input_tensor_a_activations=[ttnn.UnaryOpType.GELU_TANH],
        dtype=ACTIVATION_DTYPE,
        memory_config=place.gated,
    )
    ttnn.deallocate(gate)
    ttnn.deallocate(up)
    fed = ttnn.linear(
        gated,
        layer.down,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["down", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    ttnn.deallocate(gated)
    fed = ttnn.rms_norm(
        fed, epsilon=NORM_EPSILON, weight=layer.mlp_output_norm, memory_config=DRAM, compute_kernel_config=NORM_COMPUTE
    )
    summed = ttnn.add(hidden, fed, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(hidden)
    return summed


def layers(hidden, cos, sin, inputs, weights, stores, shape):
    """All layers over hidden [1, 1, tokens, HIDDEN], which is used up; each writes the pass's keys and values."""
    mask = causal_mask(weights, shape)
    for layer, key_cache, value_cache in zip(weights.layers, stores.keys, stores.values):
        hidden = attention(hidden, cos, sin, layer, key_cache, value_cache, inputs, shape, mask)
        hidden = mlp(hidden, layer, shape)
    return hidden


def body(inputs, weights, stores, shape):
    """One pass up to the last layer: what a trace of `shape` records."""
    hidden = embed(inputs.tokens, weights)
    cos, sin = rotary(inputs.positions, weights)
    return layers(hidden, cos, sin, inputs, weights, stores, shape)


def logits(hidden, last_rows, weights):
    """The picked rows of hidden [1, 1, tokens, HIDDEN] -> logits [1, 1, ROW_SLOTS, VOCABULARY]; no other is normed."""
    rows = ttnn.embedding(last_rows, hidden, layout=TILED, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    normed = ttnn.rms_norm(
        ttnn.unsqueeze_to_4D(rows),
        epsilon=NORM_EPSILON,
        weight=weights.final_norm,
        memory_config=DRAM,
        compute_kernel_config=NORM_COMPUTE,
    )
    scores = ttnn.linear(
        normed,
        weights.head,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["head", 1],
        compute_kernel_config=HEAD_COMPUTE,
    )
    # LOGIT_SOFT_CAP * tanh(score / LOGIT_SOFT_CAP): the final norm's weights were divided by it when they were loaded
    return ttnn.mul(
        scores,
        LOGIT_SOFT_CAP,
        input_tensor_a_activations=[ttnn.UnaryOpType.TANH],
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
    )


def argmax(scores):
    """Logits -> the likeliest token of each picked row [1, 1, ROW_SLOTS]; on row-major rows every core searches."""
    rows = ttnn.to_layout(scores, ROW_MAJOR, memory_config=DRAM)
    return ttnn.argmax(rows, dim=-1, memory_config=DRAM)


def top_k(scores, choice):
    """Logits -> a token [1, 1, 1, ROW_SLOTS] for each picked row by its own k, p and temperature; seeded beforehand."""
    values, indices = ttnn.topk(scores, k=TOP_K, dim=-1, largest=True, sorted=True, memory_config=DRAM)
    candidates = ttnn.to_layout(ttnn.typecast(indices, ttnn.uint32, memory_config=DRAM), ROW_MAJOR, memory_config=DRAM)
    return ttnn.sampling(values, candidates, k=choice.top_k, p=choice.top_p, temp=choice.inverse_temperature)


def log_probabilities(scores, tokens):
    """Natural logarithm of the probability of a token for each picked row, [1, 1, ROW_SLOTS, 1] in float32."""
    wide = ttnn.typecast(scores, ttnn.float32, memory_config=DRAM)
    highest = ttnn.max(wide, dim=-1, keepdim=True, memory_config=DRAM, compute_kernel_config=NORM_COMPUTE)
    shifted = ttnn.subtract(wide, highest, dtype=ttnn.float32, memory_config=DRAM)
    ttnn.deallocate(wide)
    powers = ttnn.exp(shifted, memory_config=DRAM)
    total = ttnn.sum(powers, dim=-1, keepdim=True, memory_config=DRAM, compute_kernel_config=NORM_COMPUTE)
    index = ttnn.to_layout(ttnn.reshape(tokens, (1, 1, ROW_SLOTS, 1)), TILED, memory_config=DRAM)
    chosen = ttnn.gather(shifted, -1, index, memory_config=DRAM)
    return ttnn.subtract(chosen, ttnn.log(total, memory_config=DRAM), dtype=ttnn.float32, memory_config=DRAM)


# --- traces: record a pass once and run it again on the same addresses ----------------------------------------------


def begin_capture(device):
    """Open a recording -> its trace id. Whoever opens one must release it, also when the capture fails."""
    return ttnn.begin_trace_capture(device, cq_id=0)


def capture(device, trace, inputs, weights, stores, shape):
    """Record the body of `shape` over persistent inputs -> hidden, which holds nothing before the first replay."""
    hidden = body(inputs, weights, stores, shape)
    ttnn.end_trace_capture(device, trace, cq_id=0)
    return hidden


def replay(device, trace):
    """Run a recorded pass on whatever its inputs hold now, without waiting for it."""
    ttnn.execute_trace(device, trace, cq_id=0, blocking=False)
