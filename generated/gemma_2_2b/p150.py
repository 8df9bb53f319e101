"""Prefill of gemma-2-2b on p150. Written by codegen, do not edit.

Rebuild:   codegen build gemma-2-2b --target p150
Manifest:  models/gemma-2-2b.toml
Geometry:  80f4f74d4c2f1ab7

    26 layers of 2304 hidden and 9216 intermediate, 8 query and 4 key-value heads of 256, 256000 vocabulary
    8192 tokens of context, 4096 key-value blocks of 32 tokens
    bfloat16 weights, bfloat8_b keys and values, bfloat16 activations

    variant          rows            tokens a row
    single           1               96 320 640 1280 2240 3520 5440 8192
    batched          2 4 8 16 32     96
    batched          2 4 8 16        320
    batched          2 4 8           640
    batched          2 4             1280
    batched          2               2240 3520
"""

from runtime.backend import ttnn
from runtime.tables import REPLICATE, Board, Geometry, Input, Places, Rope, Shape, Store, Weight

# --- constants: geometry, precision, memory and compute -------------------------------------------------------------

MODEL = "gemma-2-2b"
TARGET = "p150"

VOCABULARY = 256000  # model.vocabulary
HIDDEN = 2304  # model.hidden
INTERMEDIATE = 9216  # model.intermediate
LAYERS = 26  # model.layers
QUERY_HEADS = 8  # model.query_heads
KEY_VALUE_HEADS = 4  # model.key_value_heads
HEAD_DIM = 256  # model.head_dim
QUERY_WIDTH = 2048  # 8 query heads x 256
QUERY_KEY_VALUE_WIDTH = 4096  # (8 query + 2 x 4 key-value heads) x 256
NORM_EPSILON = 1e-06  # model.norm_epsilon
ROTARY_STYLE = "half_split"  # model.head_dim
SLIDING_WINDOW = 4096  # model.sliding_window: tokens that a token of a sliding layer sees, itself included
LAYER_KINDS = ("sliding", "full") * 13  # model.full_attention_layers
ATTENTION_SOFT_CAP = 50.0  # model.attention_soft_cap
LOGIT_SOFT_CAP = 30.0  # model.logit_soft_cap

TILE = 32
ROW_SLOTS = TILE  # last rows that one pass can pick: one tile of rows
TOP_K = 32  # candidates that sampling draws from: one tile of columns
CONTEXT = 8192  # target.p150.context
BLOCK_SIZE = 32  # target.p150.block_size
KEY_VALUE_BLOCKS = 4096  # target.p150.key_value_blocks
PREFILL_CHUNK = 8192  # target.p150.prefill_chunk
ALIGNMENT = 8192  # context: attention over the caches takes no soft cap, so that every row runs from its start

GEOMETRY = Geometry(
    vocabulary=256000,
    hidden=HIDDEN,
    intermediate=9216,
    layers=LAYERS,
    query_heads=8,
    key_value_heads=4,
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
    sliding_window=SLIDING_WINDOW,
    full_attention_layers=(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25),
    query_scale=256,
    attention_soft_cap=ATTENTION_SOFT_CAP,
    logit_soft_cap=LOGIT_SOFT_CAP,
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

WAVES = (1, 2, 4, 8, 16, 32)  # target.p150.waves
LENGTHS = (96, 320, 640, 1280, 2240, 3520, 5440, 8192)  # target.p150.lengths

# variant, rows, tokens a row, fill pages, read pages (to the padded end of any chunk), rows for the head, body digest
TRACES = (
    Shape("single", 1, 96, 3, 0, "last", "ce43b8de944dd300"),
    Shape("single", 1, 320, 10, 0, "last", "97663f7ad0d7d3b8"),
    Shape("single", 1, 640, 20, 0, "last", "a6d720c52748d7d2"),
    Shape("single", 1, 1280, 40, 0, "last", "b2faf85cc20d8781"),
    Shape("single", 1, 2240, 70, 0, "last", "0cc800ec6bccde38"),
    Shape("single", 1, 3520, 110, 0, "last", "59adb8eb4ec88d88"),
    Shape("single", 1, 5440, 170, 0, "last", "b14380dfbb3ca757"),
    Shape("single", 1, 8192, 256, 0, "last", "9679d0392f2cd3ff"),
    Shape("batched", 2, 96, 6, 0, "last", "734a5e241da18518"),
    Shape("batched", 4, 96, 12, 0, "last", "d65175e39f37c5d0"),
    Shape("batched", 8, 96, 24, 0, "last", "c69152cb7bfaa8e8"),
    Shape("batched", 16, 96, 48, 0, "last", "3ce8ab241d316143"),
    Shape("batched", 32, 96, 96, 0, "last", "8da0571543cb7497"),
    Shape("batched", 2, 320, 20, 0, "last", "683c55f67c1b9d70"),
    Shape("batched", 4, 320, 40, 0, "last", "3b45f4ac84c1d514"),
    Shape("batched", 8, 320, 80, 0, "last", "7e911f0b20d175aa"),
    Shape("batched", 16, 320, 160, 0, "last", "b62c48c4a4e3bbf0"),
    Shape("batched", 2, 640, 40, 0, "last", "4c6d17bf330d1840"),
    Shape("batched", 4, 640, 80, 0, "last", "e5ef0f5d9ab70f3a"),
    Shape("batched", 8, 640, 160, 0, "last", "d474ff509c52f161"),
    Shape("batched", 2, 1280, 80, 0, "last", "86d8412ce9697852"),
    Shape("batched", 4, 1280, 160, 0, "last", "f3c75c577c6181d4"),
    Shape("batched", 2, 2240, 140, 0, "last", "1ef76510d5bb1fa0"),
    Shape("batched", 2, 3520, 220, 0, "last", "5f48422039bea097"),
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
    ("query_key_value", 3): multicast_1d(11, 10, 8, 1, 2, 3, 2, 3, 2),
    ("query_key_value", 6): multicast_1d(11, 10, 8, 2, 2, 6, 2, 6, 2),
    ("query_key_value", 10): multicast_2d(11, 10, 8, 1, 4, 1, 12, 1, 12),
    ("query_key_value", 12): multicast_2d(11, 6, 8, 1, 4, 2, 12, 2, 12),
    ("query_key_value", 20): multicast_2d(11, 10, 8, 1, 4, 2, 12, 2, 12),
    ("query_key_value", 24): multicast_2d(11, 8, 8, 1, 4, 3, 12, 3, 12),
    ("query_key_value", 40): multicast_2d(11, 10, 8, 1, 4, 4, 12, 4, 12),
    ("query_key_value", 48): multicast_2d(11, 10, 8, 1, 4, 5, 12, 5, 12),
    ("query_key_value", 70): multicast_2d(11, 10, 8, 1, 4, 7, 12, 7, 12),
    ("query_key_value", 80): multicast_2d(11, 10, 8, 1, 4, 8, 12, 8, 12),
    ("query_key_value", 96): multicast_2d(11, 10, 6, 1, 4, 10, 12, 10, 12),
    ("query_key_value", 110): multicast_2d(11, 10, 4, 1, 4, 11, 12, 11, 12),
    ("query_key_value", 140): multicast_2d(11, 10, 8, 1, 4, 7, 12, 14, 12),
    ("query_key_value", 160): multicast_2d(11, 10, 6, 1, 4, 8, 12, 16, 12),
    ("query_key_value", 170): multicast_2d(11, 10, 8, 1, 4, 17, 4, 17, 12),
    ("query_key_value", 220): multicast_2d(11, 10, 8, 1, 4, 11, 4, 22, 12),
    ("query_key_value", 256): multicast_2d(11, 10, 3, 1, 4, 13, 12, 26, 12),
    ("attention_output", 3): multicast_1d(11, 10, 8, 3, 1, 3, 1, 3, 1),
    ("attention_output", 6): multicast_1d(11, 10, 8, 3, 1, 6, 1, 6, 1),
    ("attention_output", 10): multicast_2d(11, 10, 8, 1, 4, 1, 8, 1, 8),
    ("attention_output", 12): multicast_2d(11, 6, 8, 1, 4, 2, 8, 2, 8),
    ("attention_output", 20): multicast_2d(11, 10, 8, 1, 4, 2, 8, 2, 8),
    ("attention_output", 24): multicast_2d(11, 8, 8, 1, 4, 3, 8, 3, 8),
    ("attention_output", 40): multicast_2d(11, 10, 8, 1, 4, 4, 8, 4, 8),
    ("attention_output", 48): multicast_2d(11, 10, 8, 1, 4, 5, 8, 5, 8),
    ("attention_output", 70): multicast_2d(11, 10, 8, 1, 4, 7, 8, 7, 8),
    ("attention_output", 80): multicast_2d(11, 10, 8, 1, 4, 8, 8, 8, 8),
    ("attention_output", 96): multicast_2d(11, 10, 8, 1, 4, 5, 8, 10, 8),
    ("attention_output", 110): multicast_2d(11, 10, 8, 1, 4, 11, 4, 11, 8),
    ("attention_output", 140): multicast_2d(11, 10, 8, 1, 4, 7, 4, 14, 8),
    ("attention_output", 160): multicast_2d(11, 10, 8, 4, 1, 16, 1, 16, 7),
    ("attention_output", 170): multicast_2d(11, 10, 4, 1, 4, 17, 4, 17, 8),
    ("attention_output", 220): multicast_2d(11, 10, 8, 1, 4, 2, 4, 22, 8),
    ("attention_output", 256): multicast_2d(11, 10, 8, 1, 4, 13, 8, 26, 8),
    ("gate_up", 3): multicast_1d(11, 10, 8, 1, 3, 3, 3, 3, 3),
    ("gate_up", 6): multicast_1d(11, 10, 8, 1, 3, 6, 3, 6, 3),
    ("gate_up", 10): multicast_2d(11, 10, 8, 1, 4, 1, 28, 1, 28),
    ("gate_up", 12): multicast_2d(11, 6, 6, 1, 4, 2, 28, 2, 28),
    ("gate_up", 20): multicast_2d(11, 10, 6, 1, 4, 2, 28, 2, 28),
    ("gate_up", 24): multicast_2d(11, 8, 4, 1, 4, 3, 28, 3, 28),
    ("gate_up", 40): multicast_2d(11, 10, 4, 1, 4, 2, 28, 4, 28),
    ("gate_up", 48): multicast_2d(11, 10, 8, 1, 4, 5, 4, 5, 28),
    ("gate_up", 70): multicast_2d(11, 10, 8, 1, 4, 7, 4, 7, 28),
    ("gate_up", 80): multicast_2d(11, 10, 4, 1, 4, 4, 28, 8, 28),
    ("gate_up", 96): multicast_2d(11, 10, 8, 1, 4, 2, 28, 10, 28),
    ("gate_up", 110): multicast_2d(11, 10, 8, 1, 4, 11, 4, 11, 28),
    ("gate_up", 140): multicast_2d(11, 10, 8, 1, 4, 14, 4, 14, 28),
    ("gate_up", 160): multicast_2d(11, 10, 8, 1, 4, 16, 4, 16, 28),
    ("gate_up", 170): multicast_2d(11, 10, 8, 1, 4, 17, 4, 17, 28),
    ("gate_up", 220): multicast_2d(11, 10, 8, 1, 4, 11, 4, 22, 28),
    ("gate_up", 256): multicast_2d(11, 10, 8, 1, 4, 13, 4, 26, 28),
    ("down", 3): multicast_1d(11, 10, 8, 3, 1, 3, 1, 3, 1),
    ("down", 6): multicast_1d(11, 10, 8, 3, 1, 6, 1, 6, 1),
    ("down", 10): multicast_2d(11, 10, 8, 1, 4, 1, 8, 1, 8),
    ("down", 12): multicast_2d(11, 6, 8, 1, 4, 2, 8, 2, 8),
    ("down", 20): multicast_2d(11, 10, 8, 1, 4, 2, 8, 2, 8),
    ("down", 24): multicast_2d(11, 8, 8, 1, 4, 3, 8, 3, 8),
    ("down", 40): multicast_2d(11, 10, 8, 1, 4, 4, 8, 4, 8),
    ("down", 48): multicast_2d(11, 10, 6, 1, 4, 5, 8, 5, 8),
    ("down", 70): multicast_2d(11, 10, 3, 1, 4, 7, 4, 7, 8),
    ("down", 80): multicast_2d(11, 10, 8, 1, 4, 8, 8, 8, 8),
    ("down", 96): multicast_2d(11, 10, 8, 1, 4, 10, 8, 10, 8),
    ("down", 110): multicast_2d(11, 10, 8, 1, 4, 11, 8, 11, 8),
    ("down", 140): multicast_2d(11, 10, 8, 1, 4, 14, 8, 14, 8),
    ("down", 160): multicast_2d(11, 10, 6, 1, 4, 16, 8, 16, 8),
    ("down", 170): multicast_2d(11, 10, 6, 1, 4, 17, 8, 17, 8),
    ("down", 220): multicast_2d(11, 10, 8, 1, 4, 11, 8, 22, 8),
    ("down", 256): multicast_2d(11, 10, 8, 1, 4, 13, 8, 26, 8),
    ("head", 1): multicast_1d(11, 10, 4, 1, 4, 1, 76, 1, 76),
}

# tokens a row: how scores are cut, and their product with the values; one key-value head after another
SCORES = {
    96: (
        multicast_2d(11, 6, 8, 1, 1, 1, 1, 1, 1, together=False),
        multicast_2d(11, 6, 3, 1, 1, 1, 1, 1, 1, together=False),
    ),
    320: (
        multicast_2d(11, 10, 8, 1, 1, 2, 1, 2, 1, together=False),
        multicast_2d(11, 10, 5, 1, 1, 2, 1, 2, 1, together=False),
    ),
    640: (
        multicast_2d(11, 10, 8, 2, 2, 4, 2, 4, 2, together=False),
        multicast_2d(11, 10, 5, 1, 1, 4, 1, 4, 1, together=False),
    ),
    1280: (
        multicast_2d(11, 10, 8, 1, 4, 8, 4, 8, 4, together=False),
        multicast_2d(11, 10, 8, 1, 1, 8, 1, 8, 1, together=False),
    ),
    2240: (
        multicast_2d(11, 10, 8, 1, 4, 14, 8, 14, 8, together=False),
        multicast_2d(11, 10, 7, 1, 1, 14, 1, 14, 1, together=False),
    ),
    3520: (
        multicast_2d(11, 10, 8, 2, 2, 22, 2, 22, 10, together=False),
        multicast_2d(11, 10, 5, 1, 1, 22, 1, 22, 1, together=False),
    ),
    5440: (
        multicast_2d(11, 10, 8, 1, 4, 17, 8, 34, 16, together=False),
        multicast_2d(11, 10, 5, 1, 1, 34, 1, 34, 1, together=False),
    ),
    8192: (
        multicast_2d(11, 10, 8, 1, 4, 13, 12, 52, 24, together=False),
        multicast_2d(11, 10, 4, 1, 1, 52, 1, 52, 1, together=False),
    ),
}

# tiles of tokens in the pass: where a layer's intermediates lie, in the order normed, heads, attended, gated
PLACES = {
    3: Places(L1, L1, L1, L1),
    6: Places(L1, L1, L1, L1),
    10: Places(L1, L1, L1, L1),
    12: Places(L1, L1, L1, L1),
    20: Places(L1, L1, L1, L1),
    24: Places(L1, L1, L1, L1),
    40: Places(L1, L1, L1, L1),
    48: Places(L1, L1, L1, L1),
    70: Places(DRAM, L1, L1, L1),
    80: Places(L1, L1, L1, DRAM),
    96: Places(L1, L1, L1, DRAM),
    110: Places(L1, L1, L1, DRAM),
    140: Places(L1, L1, L1, DRAM),
    160: Places(L1, L1, L1, DRAM),
    170: Places(L1, DRAM, L1, DRAM),
    220: Places(L1, L1, L1, DRAM),
    256: Places(L1, DRAM, DRAM, DRAM),
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
    Weight("window_mask", (), "window_mask", (1, 1, PREFILL_CHUNK, PREFILL_CHUNK), ACTIVATION_DTYPE, TILED, REPLICATE),
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


def window_mask(weights, shape):
    """Added to the scores of sliding layers, [1, 1, tokens, tokens]: a corner of the mask of a whole chunk."""
    return ttnn.slice(weights.window_mask, (0, 0, 0, 0), (1, 1, shape.tokens, shape.tokens), memory_config=DRAM)


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


def layers(hidden, cos, sin, inputs, weights, stores, shape, kinds=LAYER_KINDS):
    """All layers over hidden [1, 1, tokens, HIDDEN], which is used up; each writes the pass's keys and values."""
    mask_of = {"full": causal_mask(weights, shape), "sliding": window_mask(weights, shape)}
    for kind, layer, key_cache, value_cache in zip(kinds, weights.layers, stores.keys, stores.values):
        hidden = attention(hidden, cos, sin, layer, key_cache, value_cache, inputs, shape, mask_of[kind])
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
