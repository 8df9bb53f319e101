"""Prefill of gpt-oss-20b on p150. Written by codegen, do not edit.

Rebuild:   codegen build gpt-oss-20b --target p150
Manifest:  models/gpt-oss-20b.toml
Geometry:  bb5af170d0d25d2b

    24 layers of 2880 hidden and 2880 intermediate, 64 query and 8 key-value heads of 64, 201088 vocabulary
    131072 tokens of context, 4608 key-value blocks of 32 tokens
    bfloat8_b weights, bfloat16 keys and values, bfloat16 activations

    variant          rows            tokens a row
    single           1               64 320 960 2048
    batched          2 4             64 320 960 2048
    chunked          1               64 320 960 2048
    chunked_batched  2 4             64 320 960 2048
"""

from runtime.backend import ttnn
from runtime.tables import REPLICATE, Board, Experts, Geometry, Input, Places, Rope, Routing, Shape, Store, Weight

# --- constants: geometry, precision, memory and compute -------------------------------------------------------------

MODEL = "gpt-oss-20b"
TARGET = "p150"

VOCABULARY = 201088  # model.vocabulary
HIDDEN = 2880  # model.hidden
EXPERTS = 32  # model.experts.count
EXPERTS_PER_TOKEN = 4  # model.experts.per_token
EXPERT_WIDTH = 2880  # model.experts.intermediate
LAYERS = 24  # model.layers
QUERY_HEADS = 64  # model.query_heads
KEY_VALUE_HEADS = 8  # model.key_value_heads
HEAD_DIM = 64  # model.head_dim
QUERY_WIDTH = 4096  # 64 query heads x 64
QUERY_KEY_VALUE_WIDTH = 5120  # (64 query + 2 x 8 key-value heads) x 64
ATTENTION_SCALE = 0.125  # 64 ** -0.5, exact in float32
NORM_EPSILON = 1e-05  # model.norm_epsilon
ROTARY_STYLE = "half_split"  # model.head_dim
SLIDING_WINDOW = 128  # model.sliding_window: tokens that a token of a sliding layer sees, itself included
LAYER_KINDS = ("sliding", "full") * 12  # model.full_attention_layers

TILE = 32
ROW_SLOTS = TILE  # last rows that one pass can pick: one tile of rows
TOP_K = 32  # candidates that sampling draws from: one tile of columns
CONTEXT = 131072  # target.p150.context
BLOCK_SIZE = 32  # target.p150.block_size
KEY_VALUE_BLOCKS = 4608  # target.p150.key_value_blocks
MOST_TOKENS = 8192  # of a pass: the constants of routing are this large
PREFILL_CHUNK = 2048  # target.p150.prefill_chunk
ALIGNMENT = 128  # lcm(32 block, 128 attention chunk)
WINDOW_REACH = 128  # 127 tokens before a token, in multiples of the alignment
# by the tokens of a chunk: blocks of the chunk and of the reach before it, rounded up to what attention reads at a time
WINDOW_PAGES = {64: 8, 320: 16, 960: 40, 2048: 72}

GEOMETRY = Geometry(
    vocabulary=201088,
    hidden=HIDDEN,
    intermediate=2880,
    layers=LAYERS,
    query_heads=64,
    key_value_heads=8,
    head_dim=HEAD_DIM,
    norm_epsilon=NORM_EPSILON,
    query_key_value_bias=True,
    query_key_norm=False,
    tied_embeddings=False,
    rope=Rope(
        kind="yarn",
        theta=150000.0,
        dimensions=64,
        factor=32.0,
        original_context=4096,
        beta_fast=32.0,
        beta_slow=1.0,
        truncate=False,
        attention_factor=1.3465735902799727,
    ),
    fused_projections=False,
    sliding_window=SLIDING_WINDOW,
    full_attention_layers=(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23),
    attention_sinks=True,
    attention_output_bias=True,
    experts=Experts(
        count=EXPERTS,
        per_token=EXPERTS_PER_TOKEN,
        intermediate=2880,
        renormalise=True,
        published="gpt_oss",
        biases=True,
        activation="swiglu_oai",
    ),
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
WEIGHT_DTYPE = ttnn.bfloat8_b  # target.p150.dtypes.weights
EXPERT_DTYPE = ttnn.bfloat8_b  # target.p150.dtypes.experts
ROUTER_DTYPE = ttnn.bfloat16  # as published
ROUTING_DTYPE = ttnn.bfloat16  # exact: its constants are 0, 1 and 32
INDEX_DTYPE = ttnn.uint32
EMBEDDING_DTYPE = ttnn.bfloat16  # target.p150.dtypes.embedding
HEAD_DTYPE = ttnn.bfloat16  # target.p150.dtypes.head
KEY_VALUE_DTYPE = ttnn.bfloat16  # target.p150.dtypes.key_value
HEADS_DTYPE = KEY_VALUE_DTYPE  # as the caches hold them, so that no cast follows
NORM_DTYPE = ttnn.bfloat16  # as published
BIAS_DTYPE = ttnn.bfloat16  # as published
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
ROUTING_COMPUTE = ttnn.WormholeComputeKernelConfig(  # whole numbers stay exact
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
MATMUL_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b weights
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
HEAD_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat16 head
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
ATTENTION_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat16 keys and values
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
EXPERT_COMPUTE = ttnn.WormholeComputeKernelConfig(  # HiFi2 for bfloat8_b; the kernel rules the other flags out
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=False, packer_l1_acc=False
)
EXPERT_GRID = ttnn.CoreCoord(11, 10)  # no more columns than tiles of EXPERT_WIDTH, and no more rows than columns

# --- tables: the closed set of passes and their programs ------------------------------------------------------------

WAVES = (1, 2, 4)  # target.p150.waves
LENGTHS = (64, 320, 960, 2048)  # target.p150.lengths

# variant, rows, tokens a row, fill pages, read pages (to the padded end of any chunk), rows for the head, body digest
TRACES = (
    Shape("single", 1, 64, 2, 0, "last", "761fc0acb967585d"),
    Shape("single", 1, 320, 10, 0, "last", "d60856e1da1699dd"),
    Shape("single", 1, 960, 30, 0, "last", "27b408b1f93fce69"),
    Shape("single", 1, 2048, 64, 0, "last", "b510a6593c066433"),
    Shape("batched", 2, 64, 4, 0, "last", "fe14f59d06b61baa"),
    Shape("batched", 4, 64, 8, 0, "last", "ad7039f450a4f353"),
    Shape("batched", 2, 320, 20, 0, "last", "f312fe4f38156932"),
    Shape("batched", 4, 320, 40, 0, "last", "dd5ae6b21dcb0fac"),
    Shape("batched", 2, 960, 60, 0, "last", "303896df3bf27ada"),
    Shape("batched", 4, 960, 120, 0, "last", "79781d10261f21bf"),
    Shape("batched", 2, 2048, 128, 0, "last", "36f053010f32b6df"),
    Shape("batched", 4, 2048, 256, 0, "last", "d8564d5f418c2b20"),
    Shape("chunked", 1, 64, 2, 4128, "last", "5cb70285616bddc4"),
    Shape("chunked", 1, 320, 10, 4128, "last", "1fc516f8c17a4b58"),
    Shape("chunked", 1, 960, 30, 4128, "last", "8bcacb69ebf01816"),
    Shape("chunked", 1, 2048, 64, 4128, "last", "688e420a303c38d9"),
    Shape("chunked_batched", 2, 64, 4, 4128, "last", "1c6852c5837ae9d7"),
    Shape("chunked_batched", 4, 64, 8, 4128, "last", "eaa3ac5ea199fc4f"),
    Shape("chunked_batched", 2, 320, 20, 4128, "last", "5d51a585e90b6666"),
    Shape("chunked_batched", 4, 320, 40, 4128, "last", "ba8dcc5b064f3b32"),
    Shape("chunked_batched", 2, 960, 60, 4128, "last", "18f0d95944f29187"),
    Shape("chunked_batched", 4, 960, 120, 4128, "last", "8585530b456dc5ef"),
    Shape("chunked_batched", 2, 2048, 128, 4128, "last", "a0ffe89e2dea8841"),
    Shape("chunked_batched", 4, 2048, 256, 4128, "last", "e24fc369e7aad8a0"),
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
    ("query_key_value", 2): multicast_1d(11, 10, 6, 1, 2, 2, 2, 2, 2),
    ("query_key_value", 4): multicast_1d(11, 10, 6, 2, 2, 4, 2, 4, 2),
    ("query_key_value", 8): multicast_2d(11, 8, 6, 1, 3, 1, 15, 1, 15),
    ("query_key_value", 10): multicast_2d(11, 10, 6, 1, 3, 1, 15, 1, 15),
    ("query_key_value", 20): multicast_2d(11, 10, 6, 1, 4, 2, 16, 2, 16),
    ("query_key_value", 30): multicast_2d(11, 10, 6, 1, 4, 3, 16, 3, 16),
    ("query_key_value", 40): multicast_2d(11, 10, 6, 1, 4, 4, 16, 4, 16),
    ("query_key_value", 60): multicast_2d(11, 10, 6, 1, 4, 6, 16, 6, 16),
    ("query_key_value", 64): multicast_2d(11, 10, 6, 1, 4, 7, 16, 7, 16),
    ("query_key_value", 120): multicast_2d(11, 10, 6, 1, 4, 4, 16, 12, 16),
    ("query_key_value", 128): multicast_2d(11, 10, 6, 1, 4, 13, 8, 13, 16),
    ("query_key_value", 256): multicast_2d(11, 10, 5, 1, 4, 13, 8, 26, 16),
    ("attention_output", 2): multicast_1d(11, 10, 8, 1, 1, 2, 1, 2, 1),
    ("attention_output", 4): multicast_1d(11, 10, 8, 1, 1, 4, 1, 4, 1),
    ("attention_output", 8): multicast_2d(11, 8, 8, 1, 3, 1, 9, 1, 9),
    ("attention_output", 10): multicast_2d(11, 10, 8, 1, 3, 1, 9, 1, 9),
    ("attention_output", 20): multicast_2d(11, 10, 8, 1, 3, 2, 9, 2, 9),
    ("attention_output", 30): multicast_2d(11, 10, 8, 1, 3, 3, 9, 3, 9),
    ("attention_output", 40): multicast_2d(11, 10, 8, 1, 3, 4, 9, 4, 9),
    ("attention_output", 60): multicast_2d(11, 10, 8, 1, 3, 6, 9, 6, 9),
    ("attention_output", 64): multicast_2d(11, 10, 8, 1, 3, 7, 9, 7, 9),
    ("attention_output", 120): multicast_2d(11, 10, 8, 1, 3, 12, 9, 12, 9),
    ("attention_output", 128): multicast_2d(11, 10, 8, 1, 3, 13, 3, 13, 9),
    ("attention_output", 256): multicast_2d(11, 10, 8, 1, 3, 13, 9, 26, 9),
    ("router", 2): multicast_2d(11, 2, 6, 1, 1, 1, 1, 1, 1),
    ("router", 4): multicast_2d(11, 4, 6, 1, 1, 1, 1, 1, 1),
    ("router", 8): multicast_2d(11, 8, 6, 1, 1, 1, 1, 1, 1),
    ("router", 10): multicast_2d(11, 10, 6, 1, 1, 1, 1, 1, 1),
    ("router", 20): multicast_2d(11, 10, 6, 2, 1, 2, 1, 2, 1),
    ("router", 30): multicast_2d(11, 10, 6, 3, 1, 3, 1, 3, 1),
    ("router", 40): multicast_2d(11, 10, 6, 4, 1, 4, 1, 4, 1),
    ("router", 60): multicast_2d(11, 10, 6, 3, 1, 6, 1, 6, 1),
    ("router", 64): multicast_2d(11, 10, 6, 1, 1, 7, 1, 7, 1),
    ("router", 120): multicast_2d(11, 10, 6, 4, 1, 12, 1, 12, 1),
    ("router", 128): multicast_2d(11, 10, 6, 1, 1, 13, 1, 13, 1),
    ("router", 256): multicast_2d(11, 10, 6, 2, 1, 26, 1, 26, 1),
    ("counts", 2): multicast_2d(11, 1, 2, 1, 1, 1, 1, 1, 1),
    ("counts", 4): multicast_2d(11, 1, 4, 1, 1, 1, 1, 1, 1),
    ("counts", 8): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("counts", 10): multicast_2d(11, 1, 5, 1, 1, 1, 1, 1, 1),
    ("counts", 20): multicast_2d(11, 1, 5, 1, 1, 1, 1, 1, 1),
    ("counts", 30): multicast_2d(11, 1, 6, 1, 1, 1, 1, 1, 1),
    ("counts", 40): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("counts", 60): multicast_2d(11, 1, 6, 1, 1, 1, 1, 1, 1),
    ("counts", 64): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("counts", 120): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("counts", 128): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("counts", 256): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("starts", 2): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("starts", 4): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("starts", 8): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("starts", 10): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("starts", 20): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("starts", 30): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("starts", 40): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("starts", 60): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("starts", 64): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("starts", 120): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("starts", 128): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("starts", 256): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("ranks", 2): multicast_2d(11, 2, 2, 1, 1, 1, 1, 1, 1),
    ("ranks", 4): multicast_2d(11, 4, 4, 1, 1, 1, 1, 1, 1),
    ("ranks", 8): multicast_2d(11, 8, 8, 1, 1, 1, 1, 1, 1),
    ("ranks", 10): multicast_2d(11, 10, 5, 1, 1, 1, 1, 1, 1),
    ("ranks", 20): multicast_2d(11, 10, 5, 2, 1, 2, 1, 2, 1),
    ("ranks", 30): multicast_2d(11, 10, 6, 3, 1, 3, 1, 3, 1),
    ("ranks", 40): multicast_2d(11, 10, 8, 4, 1, 4, 1, 4, 1),
    ("ranks", 60): multicast_2d(11, 10, 6, 3, 1, 6, 1, 6, 1),
    ("ranks", 64): multicast_2d(11, 10, 8, 1, 1, 7, 1, 7, 1),
    ("ranks", 120): multicast_2d(11, 10, 8, 4, 1, 12, 1, 12, 1),
    ("ranks", 128): multicast_2d(11, 10, 8, 1, 1, 13, 1, 13, 1),
    ("ranks", 256): multicast_2d(11, 10, 4, 2, 1, 26, 1, 26, 1),
    ("head", 1): multicast_1d(11, 10, 3, 1, 4, 1, 60, 1, 60),
}

# (variant, rows, tokens a row): how attention is cut
ATTENTION = {
    ("single", 1, 64): attention_chunks(64, 64),
    ("single", 1, 320): attention_chunks(64, 64),
    ("single", 1, 960): attention_chunks(64, 64),
    ("single", 1, 2048): attention_chunks(256, 256),
    ("batched", 2, 64): attention_chunks(64, 64),
    ("batched", 4, 64): attention_chunks(64, 64),
    ("batched", 2, 320): attention_chunks(64, 64),
    ("batched", 4, 320): attention_chunks(64, 64),
    ("batched", 2, 960): attention_chunks(64, 64),
    ("batched", 4, 960): attention_chunks(64, 64),
    ("batched", 2, 2048): attention_chunks(256, 256),
    ("batched", 4, 2048): attention_chunks(256, 256),
    ("chunked", 1, 64): attention_chunks(64, 128),
    ("chunked", 1, 320): attention_chunks(64, 128),
    ("chunked", 1, 960): attention_chunks(64, 128),
    ("chunked", 1, 2048): attention_chunks(128, 128),
    ("chunked_batched", 2, 64): attention_chunks(64, 128),
    ("chunked_batched", 4, 64): attention_chunks(64, 128),
    ("chunked_batched", 2, 320): attention_chunks(64, 128),
    ("chunked_batched", 4, 320): attention_chunks(64, 128),
    ("chunked_batched", 2, 960): attention_chunks(64, 128),
    ("chunked_batched", 4, 960): attention_chunks(64, 128),
    ("chunked_batched", 2, 2048): attention_chunks(128, 128),
    ("chunked_batched", 4, 2048): attention_chunks(128, 128),
}

# tiles of tokens in the pass: where a layer's intermediates lie, in the order normed, heads, attended, gated
PLACES = {
    2: Places(L1, L1, L1, DRAM),
    4: Places(L1, L1, L1, DRAM),
    8: Places(L1, L1, L1, DRAM),
    10: Places(L1, L1, L1, DRAM),
    20: Places(L1, L1, L1, DRAM),
    30: Places(L1, L1, L1, DRAM),
    40: Places(L1, L1, L1, DRAM),
    60: Places(L1, L1, L1, DRAM),
    64: Places(L1, L1, L1, DRAM),
    120: Places(L1, L1, DRAM, DRAM),
    128: Places(L1, DRAM, L1, DRAM),
    256: Places(L1, DRAM, DRAM, DRAM),
}

# --- weights and stores: every long-lived device tensor -------------------------------------------------------------

HIDDEN_NORM = (1, 1, HIDDEN // TILE, TILE)  # the row-major form that rms_norm takes: rows of one tile's width

WEIGHTS = (
    Weight(
        "embedding", ("model.embed_tokens.weight",), "rows", (VOCABULARY, HIDDEN), EMBEDDING_DTYPE, ROW_MAJOR, REPLICATE
    ),
    Weight("rotary_cos", (), "rotary_cos", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("rotary_sin", (), "rotary_sin", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("final_norm", ("model.norm.weight",), "norm", HIDDEN_NORM, NORM_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("head", ("lm_head.weight",), "projection", (HIDDEN, VOCABULARY), HEAD_DTYPE, TILED, REPLICATE),
    Weight("earlier_tokens", (), "below_diagonal", (1, 1, MOST_TOKENS, MOST_TOKENS), ROUTING_DTYPE, TILED, REPLICATE),
    Weight("every_token", (), "ones", (1, 1, 1, MOST_TOKENS), ROUTING_DTYPE, TILED, REPLICATE),
    Weight("tiles_before", (), "tiles_before", (1, 1, EXPERTS, EXPERTS), ROUTING_DTYPE, TILED, REPLICATE),
    Weight("unchosen", (), "zeros", (1, 1, MOST_TOKENS, EXPERTS), ROUTING_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("chosen", (), "ones", (1, 1, MOST_TOKENS, EXPERTS_PER_TOKEN), ROUTING_DTYPE, ROW_MAJOR, REPLICATE),
    Weight(
        "token_of_pair", (), "token_of_pair", (1, MOST_TOKENS * EXPERTS_PER_TOKEN), INDEX_DTYPE, ROW_MAJOR, REPLICATE
    ),
    Weight(
        "free_slots",
        (),
        "no_numbers",
        (1, MOST_TOKENS * EXPERTS_PER_TOKEN + TILE * EXPERTS),
        INDEX_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight("expert_index", (), "numbers", (1, EXPERTS), INDEX_DTYPE, ROW_MAJOR, REPLICATE),
)


def of_layer(name, sources, transform, shape, dtype, layout=TILED, experts=0):
    """A weight of every layer, from tensors by their names within it."""
    published = tuple(["model.layers.{layer}." + source for source in sources])
    return Weight(name, published, transform, shape, dtype, layout, REPLICATE, experts=experts)


def of_experts(name, sources, transform, shape, dtype):
    """A weight of every expert of every layer."""
    return of_layer(name, sources, transform, shape, dtype, experts=EXPERTS)


LAYER_WEIGHTS = (
    of_layer("attention_norm", ("input_layernorm.weight",), "norm", HIDDEN_NORM, NORM_DTYPE, ROW_MAJOR),
    of_layer(
        "query_key_value",
        ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
        "projection",
        (HIDDEN, QUERY_KEY_VALUE_WIDTH),
        WEIGHT_DTYPE,
    ),
    of_layer(
        "query_key_value_bias",
        ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
        "bias",
        (1, 1, 1, QUERY_KEY_VALUE_WIDTH),
        BIAS_DTYPE,
    ),
    of_layer("attention_sinks", ("self_attn.sinks",), "sinks", (1, QUERY_HEADS, 1, 1), BIAS_DTYPE),
    of_layer("attention_output", ("self_attn.o_proj.weight",), "projection", (QUERY_WIDTH, HIDDEN), WEIGHT_DTYPE),
    of_layer("attention_output_bias", ("self_attn.o_proj.bias",), "bias", (1, 1, 1, HIDDEN), BIAS_DTYPE),
    of_layer("mlp_norm", ("post_attention_layernorm.weight",), "norm", HIDDEN_NORM, NORM_DTYPE, ROW_MAJOR),
    of_layer("router", ("mlp.router.weight",), "projection", (HIDDEN, EXPERTS), ROUTER_DTYPE),
    of_layer("router_bias", ("mlp.router.bias",), "bias", (1, 1, 1, EXPERTS), ROUTER_DTYPE),
    of_experts("gate", ("mlp.experts.gate_up_proj",), "alternating_gate", (HIDDEN, EXPERT_WIDTH), EXPERT_DTYPE),
    of_experts("up", ("mlp.experts.gate_up_proj",), "alternating_up", (HIDDEN, EXPERT_WIDTH), EXPERT_DTYPE),
    of_experts("down", ("mlp.experts.down_proj",), "alternating_down", (EXPERT_WIDTH, HIDDEN), EXPERT_DTYPE),
    of_experts("gate_bias", ("mlp.experts.gate_up_proj_bias",), "alternating_gate_bias", (1, EXPERT_WIDTH), BIAS_DTYPE),
    of_experts("up_bias", ("mlp.experts.gate_up_proj_bias",), "alternating_up_bias", (1, EXPERT_WIDTH), BIAS_DTYPE),
    of_experts("down_bias", ("mlp.experts.down_proj_bias",), "alternating_down_bias", (1, HIDDEN), BIAS_DTYPE),
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
    "batched": packed_inputs,
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
    """Positions [1, tokens] -> their rows of the cosine and sine tables, each [1, 1, tokens, HEAD_DIM]."""
    cos = ttnn.embedding(positions, weights.rotary_cos, layout=TILED, dtype=ROTARY_DTYPE, memory_config=DRAM)
    sin = ttnn.embedding(positions, weights.rotary_sin, layout=TILED, dtype=ROTARY_DTYPE, memory_config=DRAM)
    return ttnn.unsqueeze_to_4D(cos), ttnn.unsqueeze_to_4D(sin)


def rotate_halves(heads, cos, sin, place):
    """Turn the first half of each head against the second, as published weights are laid out."""
    return ttnn.experimental.rotary_embedding_hf(
        heads, cos, sin, is_decode_mode=False, memory_config=place.heads, compute_kernel_config=ROTARY_COMPUTE
    )


def attend_rows(query, key, value, sinks, window, shape):
    """Each row over its own keys and values, which are all in the pass: [rows, 1, tokens, QUERY_WIDTH]."""
    return ttnn.transformer.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=True,
        sliding_window_size=window,
        attention_sink=sinks,
        scale=ATTENTION_SCALE,
        output_concat_heads=True,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION[shape.variant, shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )


def attend_single_sliding(query, key, value, key_cache, value_cache, layer, inputs, shape):
    """One row, through a window."""
    return attend_rows(query, key, value, layer.attention_sinks, SLIDING_WINDOW, shape)


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


def attend_batched_sliding(query, key, value, key_cache, value_cache, layer, inputs, shape):
    """A wave of rows as a batch: the operation takes no window beside the bounds of packed rows."""
    queries = batch_of_rows(query, QUERY_HEADS, shape)
    keys = batch_of_rows(key, KEY_VALUE_HEADS, shape)
    values = batch_of_rows(value, KEY_VALUE_HEADS, shape)
    attended = attend_rows(queries, keys, values, layer.attention_sinks, SLIDING_WINDOW, shape)
    ttnn.deallocate(queries)
    ttnn.deallocate(keys)
    ttnn.deallocate(values)
    return back_to_back(attended, shape)


def attend_cache(query, key_cache, value_cache, table, start, sinks, window, shape):
    """Chunks of rows over what the blocks of a table hold up to each token: [rows, QUERY_HEADS, tokens, HEAD_DIM]."""
    return ttnn.transformer.chunked_scaled_dot_product_attention(
        query,
        key_cache,
        value_cache,
        table,
        chunk_start_idx_tensor=start,
        sliding_window_size=window,
        attention_sink=sinks,
        scale=ATTENTION_SCALE,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION[shape.variant, shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )


def attend_chunked_sliding(query, key, value, key_cache, value_cache, layer, inputs, shape):
    """A chunk over what its row has in the cache from WINDOW_REACH tokens before it on, or from its first."""
    attended = attend_cache(
        query,
        key_cache,
        value_cache,
        inputs.window_table,
        inputs.window_start,
        layer.attention_sinks,
        SLIDING_WINDOW,
        shape,
    )
    return ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended)


def attend_chunked_batched_sliding(query, key, value, key_cache, value_cache, layer, inputs, shape):
    """Chunks of several rows that start at one position: queries become a batch, since each row has its own cache."""
    rows = batch_of_rows(query, QUERY_HEADS, shape)
    attended = attend_cache(
        rows,
        key_cache,
        value_cache,
        inputs.window_table,
        inputs.window_start,
        layer.attention_sinks,
        SLIDING_WINDOW,
        shape,
    )
    ttnn.deallocate(rows)
    return back_to_back(
        ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended), shape
    )


def attend_single_full(query, key, value, key_cache, value_cache, layer, inputs, shape):
    """One row."""
    return attend_rows(query, key, value, layer.attention_sinks, None, shape)


def attend_batched_full(query, key, value, key_cache, value_cache, layer, inputs, shape):
    """A wave of rows as a batch: the operation takes no sink beside the bounds of packed rows."""
    queries = batch_of_rows(query, QUERY_HEADS, shape)
    keys = batch_of_rows(key, KEY_VALUE_HEADS, shape)
    values = batch_of_rows(value, KEY_VALUE_HEADS, shape)
    attended = attend_rows(queries, keys, values, layer.attention_sinks, None, shape)
    ttnn.deallocate(queries)
    ttnn.deallocate(keys)
    ttnn.deallocate(values)
    return back_to_back(attended, shape)


def attend_chunked_full(query, key, value, key_cache, value_cache, layer, inputs, shape):
    """A chunk over everything that its row has in the cache, the chunk itself included."""
    attended = attend_cache(
        query, key_cache, value_cache, inputs.read_table, inputs.start, layer.attention_sinks, None, shape
    )
    return ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended)


def attend_chunked_batched_full(query, key, value, key_cache, value_cache, layer, inputs, shape):
    """Chunks of several rows that start at one position: queries become a batch, since each row has its own cache."""
    rows = batch_of_rows(query, QUERY_HEADS, shape)
    attended = attend_cache(
        rows, key_cache, value_cache, inputs.read_table, inputs.start, layer.attention_sinks, None, shape
    )
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
        bias=layer.query_key_value_bias,
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
    attended = ATTEND[kind, shape.variant](query, key, value, key_cache, value_cache, layer, inputs, shape)
    ttnn.deallocate(query)
    ttnn.deallocate(key)
    ttnn.deallocate(value)
    projected = ttnn.linear(
        attended,
        layer.attention_output,
        bias=layer.attention_output_bias,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["attention_output", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    ttnn.deallocate(attended)
    summed = ttnn.add(hidden, projected, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(hidden)
    return summed


def routing_tables(weights, shape):
    """The constants of routing, as much of each as a pass of `shape` takes."""
    tokens = shape.token_tiles * TILE
    pairs = tokens * EXPERTS_PER_TOKEN
    return Routing(
        earlier_tokens=ttnn.slice(weights.earlier_tokens, (0, 0, 0, 0), (1, 1, tokens, tokens), memory_config=DRAM),
        every_token=ttnn.slice(weights.every_token, (0, 0, 0, 0), (1, 1, 1, tokens), memory_config=DRAM),
        tiles_before=weights.tiles_before,
        unchosen=ttnn.slice(weights.unchosen, (0, 0, 0, 0), (1, 1, tokens, EXPERTS), memory_config=DRAM),
        chosen=ttnn.slice(weights.chosen, (0, 0, 0, 0), (1, 1, tokens, EXPERTS_PER_TOKEN), memory_config=DRAM),
        token_of_pair=ttnn.slice(weights.token_of_pair, (0, 0), (1, pairs), memory_config=DRAM),
        free_slots=ttnn.slice(weights.free_slots, (0, 0), (1, pairs + TILE * EXPERTS), memory_config=DRAM),
        expert_index=weights.expert_index,
    )


def pick_rows(indices, rows, extent):
    """Rows [.., HIDDEN] by their indices [1, count], seen as `extent`."""
    picked = ttnn.embedding(indices, rows, layout=ROW_MAJOR, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    return ttnn.reshape(picked, extent)


def exact_sums(role, left, right, shape):
    """A product of whole numbers whose every sum float32 holds exactly."""
    return ttnn.linear(
        left,
        right,
        dtype=ttnn.float32,
        memory_config=DRAM,
        program_config=MATMULS[role, shape.token_tiles],
        compute_kernel_config=ROUTING_COMPUTE,
    )


def as_indices(numbers, count):
    """Whole numbers in float32 tiles -> one row [1, count] of uint32."""
    whole = ttnn.typecast(numbers, INDEX_DTYPE, memory_config=DRAM)
    return ttnn.reshape(ttnn.to_layout(whole, ROW_MAJOR, memory_config=DRAM), (1, count))


def place_tokens(choice, routing, shape):
    """Experts of each token [1, 1, tokens, EXPERTS_PER_TOKEN] -> the slot of each pair of token and expert, the token
    of each slot, and the count and first slot of each expert, as rows of uint32. The slots of an expert begin at a
    whole tile and follow the order of the tokens.
    """
    columns = ttnn.to_layout(choice, ROW_MAJOR, memory_config=DRAM)
    marks = ttnn.scatter(routing.unchosen, -1, columns, routing.chosen, memory_config=DRAM)
    marks = ttnn.to_layout(marks, TILED, memory_config=DRAM)
    counts = exact_sums("counts", routing.every_token, marks, shape)
    whole_tiles = ttnn.ceil(ttnn.mul(counts, 1 / TILE, dtype=ttnn.float32, memory_config=DRAM), memory_config=DRAM)
    starts = exact_sums("starts", whole_tiles, routing.tiles_before, shape)
    ranks = exact_sums("ranks", routing.earlier_tokens, marks, shape)
    slot_if_chosen = ttnn.add(ranks, starts, dtype=ttnn.float32, memory_config=DRAM)
    slots = ttnn.gather(slot_if_chosen, -1, choice, memory_config=DRAM)
    slots = as_indices(slots, shape.token_tiles * TILE * EXPERTS_PER_TOKEN)
    token_of_slot = ttnn.scatter(routing.free_slots, -1, slots, routing.token_of_pair, memory_config=DRAM)
    return slots, token_of_slot, as_indices(counts, EXPERTS), as_indices(starts, EXPERTS)


def feed_forward(placed, counts, starts, routing, layer, part):
    """Every expert over its own slots of placed [slots, HIDDEN]; no other is written."""
    return ttnn.experimental.deepseek_prefill.moe_fused_swiglu(
        placed,
        layer.gate[part],
        layer.up[part],
        layer.down[part],
        counts,
        routing.expert_index,
        dtype=ACTIVATION_DTYPE,
        compute_kernel_config=EXPERT_COMPUTE,
        core_grid=EXPERT_GRID,
        output=ttnn.empty(placed.shape, ACTIVATION_DTYPE, TILED, device=placed.device(), memory_config=DRAM),
        expert_region_offsets=starts,
        read_x_at_offset=True,
        activation=ttnn.RoutedExpertActivation.SwiGluOai,
        gate_biases=layer.gate_bias[part],
        up_biases=layer.up_bias[part],
        down_biases=layer.down_bias[part],
    )


def experts(hidden, routing, layer, shape):
    """Add the weighted sum of every token's experts to hidden, which is used up."""
    tokens = shape.token_tiles * TILE
    pairs = tokens * EXPERTS_PER_TOKEN
    place = PLACES[shape.token_tiles]
    normed = ttnn.rms_norm(
        hidden,
        epsilon=NORM_EPSILON,
        weight=layer.mlp_norm,
        memory_config=place.normed,
        compute_kernel_config=NORM_COMPUTE,
    )
    scores = ttnn.linear(
        normed,
        layer.router,
        bias=layer.router_bias,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["router", shape.token_tiles],
        compute_kernel_config=ROUTING_COMPUTE,
    )
    best, choice = ttnn.topk(scores, k=EXPERTS_PER_TOKEN, dim=-1, largest=True, sorted=True, memory_config=DRAM)
    shares = ttnn.softmax(best, dim=-1, memory_config=DRAM, compute_kernel_config=ROUTING_COMPUTE)
    slots, token_of_slot, counts, starts = place_tokens(choice, routing, shape)
    rows = ttnn.to_layout(normed, ROW_MAJOR, memory_config=DRAM)
    ttnn.deallocate(normed)
    placed = pick_rows(token_of_slot, rows, (pairs + TILE * EXPERTS, HIDDEN))
    ttnn.deallocate(rows)
    fed = feed_forward(placed, counts, starts, routing, layer, 0)
    ttnn.deallocate(placed)
    returned = ttnn.to_layout(fed, ROW_MAJOR, memory_config=DRAM)
    ttnn.deallocate(fed)
    picked = pick_rows(slots, returned, (1, 1, tokens, EXPERTS_PER_TOKEN, HIDDEN))
    ttnn.deallocate(returned)
    row_weights = ttnn.to_layout(shares, ROW_MAJOR, memory_config=DRAM)
    row_weights = ttnn.reshape(row_weights, (1, 1, tokens, EXPERTS_PER_TOKEN, 1))
    combined = ttnn.experimental.deepseek_prefill.post_combine_reduce(
        picked, row_weights, expert_dim=3, output_memory_config=DRAM
    )
    ttnn.deallocate(picked)
    summed = ttnn.add(hidden, combined, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(hidden)
    return summed


def layers(hidden, cos, sin, inputs, weights, stores, shape, kinds=LAYER_KINDS):
    """All layers over hidden [1, 1, tokens, HIDDEN], which is used up; each writes the pass's keys and values."""
    routing = routing_tables(weights, shape)
    for kind, layer, key_cache, value_cache in zip(kinds, weights.layers, stores.keys, stores.values):
        hidden = attention(hidden, cos, sin, layer, key_cache, value_cache, inputs, shape, kind)
        hidden = experts(hidden, routing, layer, shape)
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
