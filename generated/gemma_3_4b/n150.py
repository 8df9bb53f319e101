"""Prefill of gemma-3-4b on n150. Written by codegen, do not edit.

Rebuild:   codegen build gemma-3-4b --target n150
Manifest:  models/gemma-3-4b.toml
Geometry:  00eeff56376b05fc

    34 layers of 2560 hidden and 10240 intermediate, 8 query and 4 key-value heads of 256, 262208 vocabulary
    65536 tokens of context, 2048 key-value blocks of 32 tokens
    bfloat8_b weights, bfloat8_b keys and values, bfloat16 activations

    variant          rows            tokens a row
    single           1               64 256 512 768 1248 2048
    batched          2 4 8 16        64 256
    batched          2 4 8           512
    batched          2 4             768
    batched          2               1248 2048
    chunked          1               64 256 512 768 1248 2048
    chunked_batched  2 4 8 16        64 256
    chunked_batched  2 4 8           512
    chunked_batched  2 4             768
    chunked_batched  2               1248 2048
"""

from runtime.backend import ttnn
from runtime.tables import REPLICATE, Board, Geometry, Input, Places, Rope, Shape, Store, Weight

# --- constants: geometry, precision, memory and compute -------------------------------------------------------------

MODEL = "gemma-3-4b"
TARGET = "n150"

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
CONTEXT = 65536  # target.n150.context
BLOCK_SIZE = 32  # target.n150.block_size
KEY_VALUE_BLOCKS = 2048  # target.n150.key_value_blocks
PREFILL_CHUNK = 2048  # target.n150.prefill_chunk
ALIGNMENT = 128  # lcm(32 block, 128 attention chunk)
WINDOW_REACH = 1024  # 1023 tokens before a token, in multiples of the alignment
# by the tokens of a chunk: blocks of the chunk and of the reach before it, rounded up to what attention reads at a time
WINDOW_PAGES = {64: 40, 256: 40, 512: 48, 768: 56, 1248: 72, 2048: 96}

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

WAVES = (1, 2, 4, 8, 16)  # target.n150.waves
LENGTHS = (64, 256, 512, 768, 1248, 2048)  # target.n150.lengths

# variant, rows, tokens a row, fill pages, read pages (to the padded end of any chunk), rows for the head, body digest
TRACES = (
    Shape("single", 1, 64, 2, 0, "last", "59a2490891bbd9e4"),
    Shape("single", 1, 256, 8, 0, "last", "2dfc6bd6c61cddd2"),
    Shape("single", 1, 512, 16, 0, "last", "d0d33d86e304daf5"),
    Shape("single", 1, 768, 24, 0, "last", "05ecdc9437603127"),
    Shape("single", 1, 1248, 39, 0, "last", "9f619a382fb54c06"),
    Shape("single", 1, 2048, 64, 0, "last", "1093bc45c1783813"),
    Shape("batched", 2, 64, 4, 0, "last", "e10f93e81207d673"),
    Shape("batched", 4, 64, 8, 0, "last", "a71296a50fe53a87"),
    Shape("batched", 8, 64, 16, 0, "last", "20adfaa57ca6d2cb"),
    Shape("batched", 16, 64, 32, 0, "last", "807af2fefab2183c"),
    Shape("batched", 2, 256, 16, 0, "last", "40912a55e4b8147d"),
    Shape("batched", 4, 256, 32, 0, "last", "9f5d4e95e4577e27"),
    Shape("batched", 8, 256, 64, 0, "last", "765f37ff26790d4d"),
    Shape("batched", 16, 256, 128, 0, "last", "7a5a1b40c64950e9"),
    Shape("batched", 2, 512, 32, 0, "last", "41421e329368bec5"),
    Shape("batched", 4, 512, 64, 0, "last", "9355d6cb6440502a"),
    Shape("batched", 8, 512, 128, 0, "last", "f47e664ac0290038"),
    Shape("batched", 2, 768, 48, 0, "last", "a1cb849b54f580bf"),
    Shape("batched", 4, 768, 96, 0, "last", "8c829308b8f26225"),
    Shape("batched", 2, 1248, 78, 0, "last", "fc7ac21c68d4f067"),
    Shape("batched", 2, 2048, 128, 0, "last", "496386f8e9f52cce"),
    Shape("chunked", 1, 64, 2, 2072, "last", "78da86539fcfba0f"),
    Shape("chunked", 1, 256, 8, 2072, "last", "e86aab26e18c552d"),
    Shape("chunked", 1, 512, 16, 2072, "last", "cf424252d2b434b1"),
    Shape("chunked", 1, 768, 24, 2072, "last", "24dc16ea874d63b4"),
    Shape("chunked", 1, 1248, 39, 2072, "last", "8b2cb58339303206"),
    Shape("chunked", 1, 2048, 64, 2072, "last", "e518a9680169f8f0"),
    Shape("chunked_batched", 2, 64, 4, 2072, "last", "a656eaa8108ea8b8"),
    Shape("chunked_batched", 4, 64, 8, 2072, "last", "470d234e3e306dec"),
    Shape("chunked_batched", 8, 64, 16, 2072, "last", "b6b18c0027ad3cfa"),
    Shape("chunked_batched", 16, 64, 32, 2072, "last", "0be9af5b181255a4"),
    Shape("chunked_batched", 2, 256, 16, 2072, "last", "214fd07606a5d20b"),
    Shape("chunked_batched", 4, 256, 32, 2072, "last", "0a4b629b7607ec61"),
    Shape("chunked_batched", 8, 256, 64, 2072, "last", "0872974e303e446b"),
    Shape("chunked_batched", 16, 256, 128, 2072, "last", "da6f72f1ea70027c"),
    Shape("chunked_batched", 2, 512, 32, 2072, "last", "f176b7319a93d545"),
    Shape("chunked_batched", 4, 512, 64, 2072, "last", "766a119d37ae55c8"),
    Shape("chunked_batched", 8, 512, 128, 2072, "last", "25bced81f40046e7"),
    Shape("chunked_batched", 2, 768, 48, 2072, "last", "76fb3b57e2f7c2c2"),
    Shape("chunked_batched", 4, 768, 96, 2072, "last", "c887da447f00b65d"),
    Shape("chunked_batched", 2, 1248, 78, 2072, "last", "36bf0c7adcf7867e"),
    Shape("chunked_batched", 2, 2048, 128, 2072, "last", "c403ae4247d9535d"),
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
    ("query_key_value", 2): multicast_1d(8, 8, 8, 1, 2, 2, 2, 2, 2),
    ("query_key_value", 4): multicast_1d(8, 8, 8, 2, 2, 4, 2, 4, 2),
    ("query_key_value", 8): multicast_1d(8, 8, 8, 2, 2, 8, 2, 8, 2),
    ("query_key_value", 16): multicast_2d(8, 8, 8, 1, 4, 2, 16, 2, 16),
    ("query_key_value", 24): multicast_2d(8, 8, 8, 1, 4, 3, 16, 3, 16),
    ("query_key_value", 32): multicast_2d(8, 8, 8, 1, 4, 4, 16, 4, 16),
    ("query_key_value", 39): multicast_2d(8, 8, 8, 1, 4, 5, 16, 5, 16),
    ("query_key_value", 48): multicast_2d(8, 8, 8, 1, 4, 6, 16, 6, 16),
    ("query_key_value", 64): multicast_2d(8, 8, 5, 1, 4, 8, 16, 8, 16),
    ("query_key_value", 78): multicast_2d(8, 8, 8, 1, 4, 5, 16, 10, 16),
    ("query_key_value", 96): multicast_2d(8, 8, 8, 1, 4, 4, 16, 12, 16),
    ("query_key_value", 128): multicast_2d(8, 8, 5, 1, 4, 8, 16, 16, 16),
    ("attention_output", 2): multicast_1d(8, 8, 8, 1, 2, 2, 2, 2, 2),
    ("attention_output", 4): multicast_1d(8, 8, 8, 2, 2, 4, 2, 4, 2),
    ("attention_output", 8): multicast_2d(8, 8, 8, 1, 2, 1, 10, 1, 10),
    ("attention_output", 16): multicast_2d(8, 8, 8, 1, 4, 2, 12, 2, 12),
    ("attention_output", 24): multicast_2d(8, 8, 8, 1, 4, 3, 12, 3, 12),
    ("attention_output", 32): multicast_2d(8, 8, 8, 1, 4, 4, 12, 4, 12),
    ("attention_output", 39): multicast_2d(8, 8, 8, 1, 4, 5, 12, 5, 12),
    ("attention_output", 48): multicast_2d(8, 8, 8, 1, 4, 6, 12, 6, 12),
    ("attention_output", 64): multicast_2d(8, 8, 8, 1, 4, 8, 12, 8, 12),
    ("attention_output", 78): multicast_2d(8, 8, 8, 1, 4, 5, 12, 10, 12),
    ("attention_output", 96): multicast_2d(8, 8, 8, 2, 2, 12, 2, 12, 10),
    ("attention_output", 128): multicast_2d(8, 8, 8, 2, 2, 16, 2, 16, 10),
    ("gate_up", 2): multicast_1d(8, 8, 8, 1, 3, 2, 6, 2, 6),
    ("gate_up", 4): multicast_1d(8, 8, 8, 1, 3, 4, 6, 4, 6),
    ("gate_up", 8): multicast_2d(8, 8, 8, 1, 4, 1, 40, 1, 40),
    ("gate_up", 16): multicast_2d(8, 8, 5, 1, 4, 2, 40, 2, 40),
    ("gate_up", 24): multicast_2d(8, 8, 8, 1, 4, 3, 20, 3, 40),
    ("gate_up", 32): multicast_2d(8, 8, 8, 1, 4, 4, 8, 4, 40),
    ("gate_up", 39): multicast_2d(8, 8, 8, 1, 4, 5, 20, 5, 40),
    ("gate_up", 48): multicast_2d(8, 8, 8, 1, 4, 2, 40, 6, 40),
    ("gate_up", 64): multicast_2d(8, 8, 8, 1, 4, 4, 20, 8, 40),
    ("gate_up", 78): multicast_2d(8, 8, 8, 1, 4, 5, 20, 10, 40),
    ("gate_up", 96): multicast_2d(8, 8, 8, 1, 4, 12, 8, 12, 40),
    ("gate_up", 128): multicast_2d(8, 8, 8, 1, 4, 4, 20, 16, 40),
    ("down", 2): multicast_1d(8, 8, 8, 1, 2, 2, 2, 2, 2),
    ("down", 4): multicast_1d(8, 8, 8, 2, 2, 4, 2, 4, 2),
    ("down", 8): multicast_2d(8, 8, 8, 1, 2, 1, 10, 1, 10),
    ("down", 16): multicast_2d(8, 8, 8, 1, 4, 2, 12, 2, 12),
    ("down", 24): multicast_2d(8, 8, 8, 1, 4, 3, 12, 3, 12),
    ("down", 32): multicast_2d(8, 8, 8, 1, 4, 4, 4, 4, 12),
    ("down", 39): multicast_2d(8, 8, 8, 1, 4, 5, 12, 5, 12),
    ("down", 48): multicast_2d(8, 8, 8, 1, 4, 6, 12, 6, 12),
    ("down", 64): multicast_2d(8, 8, 8, 1, 4, 8, 12, 8, 12),
    ("down", 78): multicast_2d(8, 8, 8, 1, 4, 10, 12, 10, 12),
    ("down", 96): multicast_2d(8, 8, 8, 2, 2, 12, 2, 12, 10),
    ("down", 128): multicast_2d(8, 8, 8, 2, 2, 16, 2, 16, 10),
    ("head", 1): multicast_1d(8, 8, 8, 1, 4, 1, 44, 1, 132),
}

# (variant, rows, tokens a row): how attention is cut
ATTENTION = {
    ("single", 1, 64): attention_chunks(32, 64),
    ("single", 1, 256): attention_chunks(32, 256),
    ("single", 1, 512): attention_chunks(64, 256),
    ("single", 1, 768): attention_chunks(128, 256),
    ("single", 1, 1248): attention_chunks(32, 32),
    ("single", 1, 2048): attention_chunks(256, 256),
    ("batched", 2, 64): attention_chunks(32, 64),
    ("batched", 4, 64): attention_chunks(32, 64),
    ("batched", 8, 64): attention_chunks(64, 64),
    ("batched", 16, 64): attention_chunks(64, 64),
    ("batched", 2, 256): attention_chunks(64, 256),
    ("batched", 4, 256): attention_chunks(128, 256),
    ("batched", 8, 256): attention_chunks(256, 128),
    ("batched", 16, 256): attention_chunks(256, 128),
    ("batched", 2, 512): attention_chunks(128, 256),
    ("batched", 4, 512): attention_chunks(256, 128),
    ("batched", 8, 512): attention_chunks(256, 128),
    ("batched", 2, 768): attention_chunks(256, 128),
    ("batched", 4, 768): attention_chunks(128, 256),
    ("batched", 2, 1248): attention_chunks(32, 32),
    ("batched", 2, 2048): attention_chunks(256, 128),
    ("chunked", 1, 64): attention_chunks(32, 128),
    ("chunked", 1, 256): attention_chunks(32, 128),
    ("chunked", 1, 512): attention_chunks(64, 128),
    ("chunked", 1, 768): attention_chunks(128, 128),
    ("chunked", 1, 1248): attention_chunks(32, 128),
    ("chunked", 1, 2048): attention_chunks(128, 128),
    ("chunked_batched", 2, 64): attention_chunks(32, 128),
    ("chunked_batched", 4, 64): attention_chunks(32, 128),
    ("chunked_batched", 8, 64): attention_chunks(64, 128),
    ("chunked_batched", 16, 64): attention_chunks(64, 128),
    ("chunked_batched", 2, 256): attention_chunks(64, 128),
    ("chunked_batched", 4, 256): attention_chunks(128, 128),
    ("chunked_batched", 8, 256): attention_chunks(128, 128),
    ("chunked_batched", 16, 256): attention_chunks(128, 128),
    ("chunked_batched", 2, 512): attention_chunks(128, 128),
    ("chunked_batched", 4, 512): attention_chunks(128, 128),
    ("chunked_batched", 8, 512): attention_chunks(128, 128),
    ("chunked_batched", 2, 768): attention_chunks(64, 128),
    ("chunked_batched", 4, 768): attention_chunks(128, 128),
    ("chunked_batched", 2, 1248): attention_chunks(32, 128),
    ("chunked_batched", 2, 2048): attention_chunks(128, 128),
}

# tiles of tokens in the pass: where a layer's intermediates lie, in the order normed, heads, attended, gated
PLACES = {
    2: Places(L1, L1, L1, L1),
    4: Places(L1, L1, L1, L1),
    8: Places(L1, L1, L1, L1),
    16: Places(L1, L1, L1, L1),
    24: Places(L1, L1, L1, L1),
    32: Places(L1, L1, L1, L1),
    39: Places(L1, L1, L1, DRAM),
    48: Places(L1, L1, L1, DRAM),
    64: Places(L1, L1, DRAM, DRAM),
    78: Places(L1, L1, L1, DRAM),
    96: Places(L1, L1, L1, DRAM),
    128: Places(L1, DRAM, L1, DRAM),
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
