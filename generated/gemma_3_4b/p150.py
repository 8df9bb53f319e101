"""Prefill of gemma-3-4b on p150. Written by codegen, do not edit.

Rebuild:   codegen build gemma-3-4b --target p150
Manifest:  models/gemma-3-4b.toml
Geometry:  8a483d3be6a437ee

    34 layers of 2560 hidden and 10240 intermediate, 8 query and 4 key-value heads of 256, 262208 vocabulary
    131072 tokens of context, 6144 key-value blocks of 32 tokens
    bfloat16 weights, bfloat8_b keys and values, bfloat16 activations

    variant          rows            tokens a row
    single           1               128 320 640 1280 2048
    batched          2 4 8 16        128
    batched          2 4 8           320
    batched          2 4             640
    batched          2               1280 2048
    chunked          1               128 320 640 1280 2048
    chunked_batched  2 4 8 16        128
    chunked_batched  2 4 8           320
    chunked_batched  2 4             640
    chunked_batched  2               1280 2048
"""

from runtime.backend import ttnn
from runtime.tables import REPLICATE, Board, Geometry, Input, Places, Rope, Shape, Store, Weight

# --- constants: geometry, precision, memory and compute -------------------------------------------------------------

MODEL = "gemma-3-4b"
TARGET = "p150"

VOCABULARY = 262208  # model.vocabulary
HIDDEN = 2560  # model.hidden
INTERMEDIATE = 10240  # model.intermediate
LAYERS = 34  # model.layers
QUERY_HEADS = 8  # model.query_heads
KEY_VALUE_HEADS = 4  # model.key_value_heads
HEAD_DIM = 256  # model.head_dim
QUERY_WIDTH = 2048  # 8 query heads x 256
QUERY_KEY_VALUE_WIDTH = 4096  # (8 query + 2 x 4 key-value heads) x 256
ATTENTION_SCALE = 0.0625  # 256 ** -0.5, exact in float32
NORM_EPSILON = 1e-06  # model.norm_epsilon
ROTARY_STYLE = "half_split"  # model.head_dim
SLIDING_WINDOW = 1024  # model.sliding_window: tokens that a token of a sliding layer sees, itself included
LAYER_KINDS = (  # model.full_attention_layers
    "sliding", "sliding", "sliding", "sliding", "sliding", "full",
    "sliding", "sliding", "sliding", "sliding", "sliding", "full",
    "sliding", "sliding", "sliding", "sliding", "sliding", "full",
    "sliding", "sliding", "sliding", "sliding", "sliding", "full",
    "sliding", "sliding", "sliding", "sliding", "sliding", "full",
    "sliding", "sliding", "sliding", "sliding",
)  # fmt: skip

TILE = 32
ROW_SLOTS = TILE  # last rows that one pass can pick: one tile of rows
TOP_K = 32  # candidates that sampling draws from: one tile of columns
CONTEXT = 131072  # target.p150.context
BLOCK_SIZE = 32  # target.p150.block_size
KEY_VALUE_BLOCKS = 6144  # target.p150.key_value_blocks
PREFILL_CHUNK = 2048  # target.p150.prefill_chunk
ALIGNMENT = 128  # lcm(32 block, 128 attention chunk)
WINDOW_REACH = 1024  # 1023 tokens before a token, in multiples of the alignment
# by the tokens of a chunk: blocks of the chunk and of the reach before it, rounded up to what attention reads at a time
WINDOW_PAGES = {128: 40, 320: 48, 640: 56, 1280: 72, 2048: 96}

GEOMETRY = Geometry(
    vocabulary=262208,
    hidden=HIDDEN,
    intermediate=10240,
    layers=LAYERS,
    query_heads=8,
    key_value_heads=4,
    head_dim=HEAD_DIM,
    norm_epsilon=NORM_EPSILON,
    query_key_value_bias=False,
    query_key_norm=True,
    tied_embeddings=True,
    rope=Rope(
        kind="linear",
        theta=1000000.0,
        dimensions=256,
        factor=8.0,
    ),
    fused_projections=False,
    local_rope=Rope(
        kind="default",
        theta=10000.0,
        dimensions=256,
    ),
    activation="gelu_tanh",
    sliding_window=SLIDING_WINDOW,
    full_attention_layers=(5, 11, 17, 23, 29),
    query_scale=256,
    sandwich_norms=True,
    unit_offset_norms=True,
    scaled_embedding=True,
)
BOARD = Board(
    name="p150",
    architecture="blackhole",
    grid=(11, 10),
    dram_banks=8,
    dram_bank_bytes=4277141376,
    dram_alignment=64,
    l1_bank_bytes=1461120,
    l1_limit=1572864,
)

ACTIVATION_DTYPE = ttnn.bfloat16  # target.p150.dtypes.activation
WEIGHT_DTYPE = ttnn.bfloat16  # target.p150.dtypes.weights
EMBEDDING_DTYPE = ttnn.bfloat16  # target.p150.dtypes.embedding
HEAD_DTYPE = ttnn.bfloat8_b  # target.p150.dtypes.head
KEY_VALUE_DTYPE = ttnn.bfloat8_b  # target.p150.dtypes.key_value
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
MATMUL_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat16 weights
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
HEAD_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b head
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
ATTENTION_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b keys and values
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)

# --- tables: the closed set of passes and their programs ------------------------------------------------------------

WAVES = (1, 2, 4, 8, 16)  # target.p150.waves
LENGTHS = (128, 320, 640, 1280, 2048)  # target.p150.lengths

# variant, rows, tokens a row, fill pages, read pages (to the padded end of any chunk), rows for the head, body digest
TRACES = (
    Shape("single", 1, 128, 4, 0, "last", "0b5d54541207c6eb"),
    Shape("single", 1, 320, 10, 0, "last", "37dc4c1de844f282"),
    Shape("single", 1, 640, 20, 0, "last", "146f426d569e32a3"),
    Shape("single", 1, 1280, 40, 0, "last", "183ecf790e2e6702"),
    Shape("single", 1, 2048, 64, 0, "last", "3ecd29abc5fd2e22"),
    Shape("batched", 2, 128, 8, 0, "last", "b37ad05d4f4c48cb"),
    Shape("batched", 4, 128, 16, 0, "last", "c45f07ffaee2e2fe"),
    Shape("batched", 8, 128, 32, 0, "last", "40b860bcb73a21a4"),
    Shape("batched", 16, 128, 64, 0, "last", "0d2083650da750d3"),
    Shape("batched", 2, 320, 20, 0, "last", "5e94a762a7846f83"),
    Shape("batched", 4, 320, 40, 0, "last", "646d337adc67626e"),
    Shape("batched", 8, 320, 80, 0, "last", "4460b91786e14f95"),
    Shape("batched", 2, 640, 40, 0, "last", "7b8c90b7705592c2"),
    Shape("batched", 4, 640, 80, 0, "last", "0af22d2f3fba87aa"),
    Shape("batched", 2, 1280, 80, 0, "last", "2b8beec7031b5b2c"),
    Shape("batched", 2, 2048, 128, 0, "last", "6098bc7fb2699b10"),
    Shape("chunked", 1, 128, 4, 4120, "last", "53d2d96a1367cd88"),
    Shape("chunked", 1, 320, 10, 4120, "last", "613997abe3bc2d71"),
    Shape("chunked", 1, 640, 20, 4120, "last", "4d9620d59c542659"),
    Shape("chunked", 1, 1280, 40, 4120, "last", "2f5861a518fefc0d"),
    Shape("chunked", 1, 2048, 64, 4120, "last", "459d678f2afb078c"),
    Shape("chunked_batched", 2, 128, 8, 4120, "last", "bcd3bdfc62a1d28f"),
    Shape("chunked_batched", 4, 128, 16, 4120, "last", "252c469289270915"),
    Shape("chunked_batched", 8, 128, 32, 4120, "last", "b1d879ec9f81cc30"),
    Shape("chunked_batched", 16, 128, 64, 4120, "last", "25a53f18c13494e0"),
    Shape("chunked_batched", 2, 320, 20, 4120, "last", "59f4143e2c30f3ac"),
    Shape("chunked_batched", 4, 320, 40, 4120, "last", "4dd6ba3cda5f1158"),
    Shape("chunked_batched", 8, 320, 80, 4120, "last", "bd0782ff0df67a2c"),
    Shape("chunked_batched", 2, 640, 40, 4120, "last", "14d805d2ea725918"),
    Shape("chunked_batched", 4, 640, 80, 4120, "last", "737272d22fde1a76"),
    Shape("chunked_batched", 2, 1280, 80, 4120, "last", "c9948f4ec424755e"),
    Shape("chunked_batched", 2, 2048, 128, 4120, "last", "5a81d4e44cf77bc9"),
)
SAMPLING = ("logits", "argmax", "top_k")
PROGRAMS = tuple((shape.digest, ending) for shape in TRACES for ending in SAMPLING)


def multicast_2d(columns, rows, inner, subblock_m, subblock_n, block_m, block_n, core_m, core_n):
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
        fuse_batch=True,
    )


def multicast_1d(columns, rows, inner, subblock_m, subblock_n, block_m, block_n, core_m, core_n):
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
        fuse_batch=True,
        fused_activation=None,
        mcast_in0=True,
    )


def attention_chunks(query_tokens, key_tokens):
    """Tokens of queries and keys that one core holds at a time."""
    return ttnn.SDPAProgramConfig(
        compute_with_storage_grid_size=BOARD.grid,
        q_chunk_size=query_tokens,
        k_chunk_size=key_tokens,
        exp_approx_mode=False,
    )


# (role, tiles of tokens in the pass): how the matmul is cut over the cores
MATMULS = {
    ("query_key_value", 4): multicast_1d(11, 10, 8, 2, 2, 4, 2, 4, 2),
    ("query_key_value", 8): multicast_2d(11, 8, 8, 1, 4, 1, 12, 1, 12),
    ("query_key_value", 10): multicast_2d(11, 10, 8, 1, 4, 1, 12, 1, 12),
    ("query_key_value", 16): multicast_2d(11, 8, 8, 1, 4, 2, 12, 2, 12),
    ("query_key_value", 20): multicast_2d(11, 10, 8, 1, 4, 2, 12, 2, 12),
    ("query_key_value", 32): multicast_2d(11, 8, 8, 1, 4, 4, 12, 4, 12),
    ("query_key_value", 40): multicast_2d(11, 10, 8, 1, 4, 4, 12, 4, 12),
    ("query_key_value", 64): multicast_2d(11, 10, 8, 1, 4, 7, 12, 7, 12),
    ("query_key_value", 80): multicast_2d(11, 10, 8, 1, 4, 8, 12, 8, 12),
    ("query_key_value", 128): multicast_2d(11, 10, 8, 1, 4, 13, 4, 13, 12),
    ("attention_output", 4): multicast_1d(11, 10, 8, 4, 1, 4, 1, 4, 1),
    ("attention_output", 8): multicast_2d(11, 8, 8, 1, 4, 1, 8, 1, 8),
    ("attention_output", 10): multicast_2d(11, 10, 8, 1, 4, 1, 8, 1, 8),
    ("attention_output", 16): multicast_2d(11, 8, 8, 1, 4, 2, 8, 2, 8),
    ("attention_output", 20): multicast_2d(11, 10, 8, 1, 4, 2, 8, 2, 8),
    ("attention_output", 32): multicast_2d(11, 8, 8, 1, 4, 4, 8, 4, 8),
    ("attention_output", 40): multicast_2d(11, 10, 8, 1, 4, 4, 8, 4, 8),
    ("attention_output", 64): multicast_2d(11, 10, 8, 1, 4, 7, 8, 7, 8),
    ("attention_output", 80): multicast_2d(11, 10, 8, 1, 4, 8, 8, 8, 8),
    ("attention_output", 128): multicast_2d(11, 10, 8, 1, 4, 13, 4, 13, 8),
    ("gate_up", 4): multicast_1d(11, 10, 8, 1, 3, 4, 3, 4, 3),
    ("gate_up", 8): multicast_1d(11, 10, 8, 1, 3, 8, 3, 8, 3),
    ("gate_up", 10): multicast_2d(11, 10, 8, 1, 4, 1, 32, 1, 32),
    ("gate_up", 16): multicast_2d(11, 8, 5, 1, 4, 2, 32, 2, 32),
    ("gate_up", 20): multicast_2d(11, 10, 5, 1, 4, 2, 32, 2, 32),
    ("gate_up", 32): multicast_2d(11, 8, 5, 1, 4, 4, 16, 4, 32),
    ("gate_up", 40): multicast_2d(11, 10, 5, 1, 4, 4, 16, 4, 32),
    ("gate_up", 64): multicast_2d(11, 10, 5, 1, 4, 7, 16, 7, 32),
    ("gate_up", 80): multicast_2d(11, 10, 5, 1, 4, 8, 16, 8, 32),
    ("gate_up", 128): multicast_2d(11, 10, 5, 1, 4, 13, 8, 13, 32),
    ("down", 4): multicast_1d(11, 10, 8, 4, 1, 4, 1, 4, 1),
    ("down", 8): multicast_2d(11, 8, 8, 1, 4, 1, 8, 1, 8),
    ("down", 10): multicast_2d(11, 10, 8, 1, 4, 1, 8, 1, 8),
    ("down", 16): multicast_2d(11, 8, 8, 1, 4, 2, 8, 2, 8),
    ("down", 20): multicast_2d(11, 10, 8, 1, 4, 2, 8, 2, 8),
    ("down", 32): multicast_2d(11, 8, 8, 1, 4, 4, 8, 4, 8),
    ("down", 40): multicast_2d(11, 10, 8, 1, 4, 4, 8, 4, 8),
    ("down", 64): multicast_2d(11, 10, 8, 1, 4, 7, 8, 7, 8),
    ("down", 80): multicast_2d(11, 10, 8, 1, 4, 8, 8, 8, 8),
    ("down", 128): multicast_2d(11, 10, 8, 1, 4, 13, 8, 13, 8),
    ("head", 1): multicast_1d(11, 10, 5, 1, 4, 1, 76, 1, 76),
}

# (variant, rows, tokens a row): how attention is cut
ATTENTION = {
    ("single", 1, 128): attention_chunks(32, 128),
    ("single", 1, 320): attention_chunks(32, 64),
    ("single", 1, 640): attention_chunks(64, 128),
    ("single", 1, 1280): attention_chunks(128, 256),
    ("single", 1, 2048): attention_chunks(256, 256),
    ("batched", 2, 128): attention_chunks(32, 128),
    ("batched", 4, 128): attention_chunks(64, 128),
    ("batched", 8, 128): attention_chunks(128, 128),
    ("batched", 16, 128): attention_chunks(64, 128),
    ("batched", 2, 320): attention_chunks(64, 64),
    ("batched", 4, 320): attention_chunks(64, 64),
    ("batched", 8, 320): attention_chunks(64, 64),
    ("batched", 2, 640): attention_chunks(128, 128),
    ("batched", 4, 640): attention_chunks(64, 128),
    ("batched", 2, 1280): attention_chunks(256, 256),
    ("batched", 2, 2048): attention_chunks(128, 256),
    ("chunked", 1, 128): attention_chunks(32, 128),
    ("chunked", 1, 320): attention_chunks(32, 128),
    ("chunked", 1, 640): attention_chunks(64, 128),
    ("chunked", 1, 1280): attention_chunks(128, 128),
    ("chunked", 1, 2048): attention_chunks(64, 128),
    ("chunked_batched", 2, 128): attention_chunks(32, 128),
    ("chunked_batched", 4, 128): attention_chunks(64, 128),
    ("chunked_batched", 8, 128): attention_chunks(128, 128),
    ("chunked_batched", 16, 128): attention_chunks(64, 128),
    ("chunked_batched", 2, 320): attention_chunks(64, 128),
    ("chunked_batched", 4, 320): attention_chunks(64, 128),
    ("chunked_batched", 8, 320): attention_chunks(64, 128),
    ("chunked_batched", 2, 640): attention_chunks(128, 128),
    ("chunked_batched", 4, 640): attention_chunks(64, 128),
    ("chunked_batched", 2, 1280): attention_chunks(64, 128),
    ("chunked_batched", 2, 2048): attention_chunks(128, 128),
}

# tiles of tokens in the pass: where a layer's intermediates lie, in the order normed, heads, attended, gated
PLACES = {
    4: Places(L1, L1, L1, L1),
    8: Places(L1, L1, L1, L1),
    10: Places(L1, L1, L1, L1),
    16: Places(L1, L1, L1, L1),
    20: Places(L1, L1, L1, L1),
    32: Places(L1, L1, L1, L1),
    40: Places(L1, L1, L1, L1),
    64: Places(L1, L1, L1, DRAM),
    80: Places(L1, DRAM, L1, DRAM),
    128: Places(L1, L1, L1, DRAM),
}

# --- weights and stores: every long-lived device tensor -------------------------------------------------------------

HIDDEN_NORM = (1, 1, HIDDEN // TILE, TILE)  # the row-major form that rms_norm takes: rows of one tile's width
HEAD_NORM = (1, 1, HEAD_DIM // TILE, TILE)

WEIGHTS = (
    Weight(
        "embedding",
        ("language_model.model.embed_tokens.weight",),
        "scaled_rows",
        (VOCABULARY, HIDDEN),
        EMBEDDING_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight("rotary_cos", (), "rotary_cos", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("rotary_sin", (), "rotary_sin", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("rotary_local_cos", (), "rotary_local_cos", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("rotary_local_sin", (), "rotary_local_sin", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight(
        "final_norm",
        ("language_model.model.norm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "head",
        ("language_model.model.embed_tokens.weight",),
        "projection",
        (HIDDEN, VOCABULARY),
        HEAD_DTYPE,
        TILED,
        REPLICATE,
    ),
)
LAYER_WEIGHTS = (
    Weight(
        "attention_norm",
        ("language_model.model.layers.{layer}.input_layernorm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "query_key_value",
        (
            "language_model.model.layers.{layer}.self_attn.q_proj.weight",
            "language_model.model.layers.{layer}.self_attn.k_proj.weight",
            "language_model.model.layers.{layer}.self_attn.v_proj.weight",
        ),
        "projection",
        (HIDDEN, QUERY_KEY_VALUE_WIDTH),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "query_norm",
        ("language_model.model.layers.{layer}.self_attn.q_norm.weight",),
        "offset_norm",
        HEAD_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "key_norm",
        ("language_model.model.layers.{layer}.self_attn.k_norm.weight",),
        "offset_norm",
        HEAD_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "attention_output",
        ("language_model.model.layers.{layer}.self_attn.o_proj.weight",),
        "projection",
        (QUERY_WIDTH, HIDDEN),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "attention_output_norm",
        ("language_model.model.layers.{layer}.post_attention_layernorm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "mlp_norm",
        ("language_model.model.layers.{layer}.pre_feedforward_layernorm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "gate",
        ("language_model.model.layers.{layer}.mlp.gate_proj.weight",),
        "projection",
        (HIDDEN, INTERMEDIATE),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "up",
        ("language_model.model.layers.{layer}.mlp.up_proj.weight",),
        "projection",
        (HIDDEN, INTERMEDIATE),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "down",
        ("language_model.model.layers.{layer}.mlp.down_proj.weight",),
        "projection",
        (INTERMEDIATE, HIDDEN),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "mlp_output_norm",
        ("language_model.model.layers.{layer}.post_feedforward_layernorm.weight",),
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


def batched_inputs(shape):
    """A wave also states where each padded row begins and where the last one ends."""
    return (*packed_inputs(shape), Input("row_bounds", (shape.rows + 1,), ttnn.int32, "never"))


def chunked_inputs(shape):
    """Chunks also read the blocks of their rows and state the one position that all start at: full layers from the
    first block on, sliding layers from WINDOW_REACH tokens before the chunk on, or the first, and count from there.
    """
    return (
        *packed_inputs(shape),
        Input("read_table", (shape.rows, shape.read_pages), ttnn.int32, "always"),
        Input("start", (1,), ttnn.int32, "always"),
        Input("window_table", (shape.rows, WINDOW_PAGES[shape.tokens]), ttnn.int32, "always"),
        Input("window_start", (1,), ttnn.int32, "always"),
    )


INPUTS = {
    "single": packed_inputs,
    "batched": batched_inputs,
    "chunked": chunked_inputs,
    "chunked_batched": chunked_inputs,
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
    """Positions [1, tokens] -> cosines and sines of full, then of sliding layers, each [1, 1, tokens, HEAD_DIM]."""
    tables = (weights.rotary_cos, weights.rotary_sin, weights.rotary_local_cos, weights.rotary_local_sin)
    rows = [ttnn.embedding(positions, table, layout=TILED, dtype=ROTARY_DTYPE, memory_config=DRAM) for table in tables]
    return [ttnn.unsqueeze_to_4D(of_table) for of_table in rows]


def head_norm(heads, weight, place):
    """Root-mean-square norm of every head by itself: [1, heads, tokens, HEAD_DIM]."""
    return ttnn.rms_norm(
        heads, epsilon=NORM_EPSILON, weight=weight, memory_config=place.heads, compute_kernel_config=NORM_COMPUTE
    )


def rotate_halves(heads, cos, sin, place):
    """Turn the first half of each head against the second, as published weights are laid out."""
    return ttnn.experimental.rotary_embedding_hf(
        heads, cos, sin, is_decode_mode=False, memory_config=place.heads, compute_kernel_config=ROTARY_COMPUTE
    )


def attend_rows(query, key, value, window, shape):
    """Each row over its own keys and values, which are all in the pass: [rows, 1, tokens, QUERY_WIDTH]."""
    return ttnn.transformer.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=True,
        sliding_window_size=window,
        scale=ATTENTION_SCALE,
        output_concat_heads=True,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION[shape.variant, shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )


def attend_single_sliding(query, key, value, key_cache, value_cache, inputs, shape):
    """One row, through a window."""
    return attend_rows(query, key, value, SLIDING_WINDOW, shape)


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


def attend_batched_sliding(query, key, value, key_cache, value_cache, inputs, shape):
    """A wave of rows as a batch: the operation takes no window beside the bounds of packed rows."""
    queries = batch_of_rows(query, QUERY_HEADS, shape)
    keys = batch_of_rows(key, KEY_VALUE_HEADS, shape)
    values = batch_of_rows(value, KEY_VALUE_HEADS, shape)
    attended = attend_rows(queries, keys, values, SLIDING_WINDOW, shape)
    ttnn.deallocate(queries)
    ttnn.deallocate(keys)
    ttnn.deallocate(values)
    return back_to_back(attended, shape)


def attend_cache(query, key_cache, value_cache, table, start, window, shape):
    """Chunks of rows over what the blocks of a table hold up to each token: [rows, QUERY_HEADS, tokens, HEAD_DIM]."""
    return ttnn.transformer.chunked_scaled_dot_product_attention(
        query,
        key_cache,
        value_cache,
        table,
        chunk_start_idx_tensor=start,
        sliding_window_size=window,
        scale=ATTENTION_SCALE,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION[shape.variant, shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )


def attend_chunked_sliding(query, key, value, key_cache, value_cache, inputs, shape):
    """A chunk over what its row has in the cache from WINDOW_REACH tokens before it on, or from its first."""
    attended = attend_cache(
        query, key_cache, value_cache, inputs.window_table, inputs.window_start, SLIDING_WINDOW, shape
    )
    return ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended)


def attend_chunked_batched_sliding(query, key, value, key_cache, value_cache, inputs, shape):
    """Chunks of several rows that start at one position: queries become a batch, since each row has its own cache."""
    rows = batch_of_rows(query, QUERY_HEADS, shape)
    attended = attend_cache(
        rows, key_cache, value_cache, inputs.window_table, inputs.window_start, SLIDING_WINDOW, shape
    )
    ttnn.deallocate(rows)
    return back_to_back(
        ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended), shape
    )


def attend_single_full(query, key, value, key_cache, value_cache, inputs, shape):
    """One row."""
    return attend_rows(query, key, value, None, shape)


def attend_batched_full(query, key, value, key_cache, value_cache, inputs, shape):
    """A wave of rows packed back to back: causal inside the bounds of each row, nothing across them."""
    return ttnn.transformer.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=True,
        cu_window_seqlens=inputs.row_bounds,
        scale=ATTENTION_SCALE,
        output_concat_heads=True,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION["batched", shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )


def attend_chunked_full(query, key, value, key_cache, value_cache, inputs, shape):
    """A chunk over everything that its row has in the cache, the chunk itself included."""
    attended = attend_cache(query, key_cache, value_cache, inputs.read_table, inputs.start, None, shape)
    return ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended)


def attend_chunked_batched_full(query, key, value, key_cache, value_cache, inputs, shape):
    """Chunks of several rows that start at one position: queries become a batch, since each row has its own cache."""
    rows = batch_of_rows(query, QUERY_HEADS, shape)
    attended = attend_cache(rows, key_cache, value_cache, inputs.read_table, inputs.start, None, shape)
    ttnn.deallocate(rows)
    return back_to_back(
        ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended), shape
    )


ATTEND = {
    ("sliding", "single"): attend_single_sliding,
    ("sliding", "batched"): attend_batched_sliding,
    ("sliding", "chunked"): attend_chunked_sliding,
    ("sliding", "chunked_batched"): attend_chunked_batched_sliding,
    ("full", "single"): attend_single_full,
    ("full", "batched"): attend_batched_full,
    ("full", "chunked"): attend_chunked_full,
    ("full", "chunked_batched"): attend_chunked_batched_full,
}


def attention(hidden, cos, sin, layer, key_cache, value_cache, inputs, shape, kind):
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
    query = head_norm(query, layer.query_norm, place)
    key = head_norm(key, layer.key_norm, place)
    query = rotate_halves(query, cos, sin, place)
    key = rotate_halves(key, cos, sin, place)
    ttnn.experimental.paged_fill_cache(key_cache, key, inputs.fill_table, batch_idx=0)
    ttnn.experimental.paged_fill_cache(value_cache, value, inputs.fill_table, batch_idx=0)
    attended = ATTEND[kind, shape.variant](query, key, value, key_cache, value_cache, inputs, shape)
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


def layers(hidden, cos, sin, local_cos, local_sin, inputs, weights, stores, shape, kinds=LAYER_KINDS):
    """All layers over hidden [1, 1, tokens, HIDDEN], which is used up; each writes the pass's keys and values."""
    turning = {"full": (cos, sin), "sliding": (local_cos, local_sin)}
    for kind, layer, key_cache, value_cache in zip(kinds, weights.layers, stores.keys, stores.values):
        hidden = attention(hidden, *turning[kind], layer, key_cache, value_cache, inputs, shape, kind)
        hidden = mlp(hidden, layer, shape)
    return hidden


def body(inputs, weights, stores, shape):
    """One pass up to the last layer: what a trace of `shape` records."""
    hidden = embed(inputs.tokens, weights)
    cos, sin, local_cos, local_sin = rotary(inputs.positions, weights)
    return layers(hidden, cos, sin, local_cos, local_sin, inputs, weights, stores, shape)


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
    return ttnn.linear(
        normed,
        weights.head,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["head", 1],
        compute_kernel_config=HEAD_COMPUTE,
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
