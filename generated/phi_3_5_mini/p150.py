"""Prefill of phi-3.5-mini on p150. Written by codegen, do not edit.

Rebuild:   codegen build phi-3.5-mini --target p150
Manifest:  models/phi-3.5-mini.toml
Geometry:  5710e4dc98553a96

    32 layers of 3072 hidden and 8192 intermediate, 32 query and 32 key-value heads of 96, 32064 vocabulary
    131072 tokens of context, 4096 key-value blocks of 32 tokens
    bfloat8_b weights, bfloat8_b keys and values, bfloat16 activations

    variant          rows            tokens a row
    single           1               64 320 640 1280 2048
    ragged           up to 8         256 together
    ragged           up to 16        512 together
    ragged           up to 24        768 together
    ragged           up to 20        1280 2560 together
    ragged           up to 28        1792 together
    ragged           up to 30        3840 together
    ragged           up to 22        5632 together
    ragged           up to 32        8192 together
    chunked          1               64 320 640 1280 2048
    chunked_batched  2 4 8 16 32     64
    chunked_batched  2 4 8 16        320
    chunked_batched  2 4 8           640
    chunked_batched  2 4             1280 2048
"""

from runtime.backend import ttnn
from runtime.tables import REPLICATE, Board, Geometry, Input, Places, Rope, Shape, Store, Weight

# --- constants: geometry, precision, memory and compute -------------------------------------------------------------

MODEL = "phi-3.5-mini"
TARGET = "p150"

VOCABULARY = 32064  # model.vocabulary
HIDDEN = 3072  # model.hidden
INTERMEDIATE = 8192  # model.intermediate
LAYERS = 32  # model.layers
QUERY_HEADS = 32  # model.query_heads
KEY_VALUE_HEADS = 32  # model.key_value_heads
HEAD_DIM = 96  # 3072 hidden / 32 query heads
QUERY_WIDTH = 3072  # 32 query heads x 96
QUERY_KEY_VALUE_WIDTH = 9216  # (32 query + 2 x 32 key-value heads) x 96
ATTENTION_SCALE = 0.10206207633018494  # 96 ** -0.5, rounded to float32
NORM_EPSILON = 1e-05  # model.norm_epsilon
ROTARY_STYLE = "interleaved"  # model.hidden, model.query_heads
ROTARY_SWITCH = 4096  # model.rope.original_context: longer prompts take the second half of the rotary tables

SHORT_FACTORS = (  # model.rope.short_factors: how far each pair of dimensions is stretched
    1.0, 1.0199999809265137, 1.0299999713897705, 1.0299999713897705, 1.0499999523162842,
    1.0499999523162842, 1.0499999523162842, 1.0499999523162842, 1.0499999523162842, 1.0699999332427979,
    1.0999999046325684, 1.1099998950958252, 1.1599998474121094, 1.1599998474121094, 1.1699998378753662,
    1.2899998426437378, 1.339999794960022, 1.679999828338623, 1.7899998426437378, 1.8199998140335083,
    1.8499997854232788, 1.8799997568130493, 1.9099997282028198, 1.9399996995925903, 1.9899996519088745,
    2.0199997425079346, 2.0199997425079346, 2.0199997425079346, 2.0199997425079346, 2.0199997425079346,
    2.0199997425079346, 2.0299997329711914, 2.0299997329711914, 2.0299997329711914, 2.0299997329711914,
    2.0299997329711914, 2.0299997329711914, 2.0299997329711914, 2.0299997329711914, 2.0299997329711914,
    2.0799996852874756, 2.0899996757507324, 2.189999580383301, 2.2199995517730713, 2.5899994373321533,
    2.729999542236328, 2.749999523162842, 2.8399994373321533,
)  # fmt: skip

LONG_FACTORS = (  # model.rope.long_factors: how far each pair of dimensions is stretched
    1.0800000429153442, 1.1100000143051147, 1.1399999856948853, 1.340000033378601, 1.5899999141693115,
    1.600000023841858, 1.6200000047683716, 2.620000123977661, 3.2300000190734863, 3.2300000190734863,
    4.789999961853027, 7.400000095367432, 7.700000286102295, 9.09000015258789, 12.199999809265137,
    17.670000076293945, 24.46000099182129, 28.57000160217285, 30.420001983642578, 30.840002059936523,
    32.590003967285156, 32.93000411987305, 42.320003509521484, 44.96000289916992, 50.340003967285156,
    50.45000457763672, 57.55000305175781, 57.93000411987305, 58.21000289916992, 60.1400032043457,
    62.61000442504883, 62.62000274658203, 62.71000289916992, 63.1400032043457, 63.1400032043457,
    63.77000427246094, 63.93000411987305, 63.96000289916992, 63.970001220703125, 64.02999877929688,
    64.06999969482422, 64.08000183105469, 64.12000274658203, 64.41000366210938, 64.4800033569336,
    64.51000213623047, 64.52999877929688, 64.83999633789062,
)  # fmt: skip

TILE = 32
ROW_SLOTS = TILE  # last rows that one pass can pick: one tile of rows
TOP_K = 32  # candidates that sampling draws from: one tile of columns
CONTEXT = 131072  # target.p150.context
BLOCK_SIZE = 32  # target.p150.block_size
KEY_VALUE_BLOCKS = 4096  # target.p150.key_value_blocks
PREFILL_CHUNK = 2048  # target.p150.prefill_chunk
ALIGNMENT = 128  # lcm(32 block, 128 attention chunk)

GEOMETRY = Geometry(
    vocabulary=32064,
    hidden=HIDDEN,
    intermediate=8192,
    layers=LAYERS,
    query_heads=32,
    key_value_heads=32,
    head_dim=HEAD_DIM,
    norm_epsilon=NORM_EPSILON,
    query_key_value_bias=False,
    query_key_norm=False,
    tied_embeddings=False,
    rope=Rope(
        kind="longrope",
        theta=10000.0,
        dimensions=96,
        original_context=4096,
        short_factors=SHORT_FACTORS,
        long_factors=LONG_FACTORS,
        attention_factor=1.1902380714238083,
    ),
    fused_projections=True,
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
EMBEDDING_DTYPE = ttnn.bfloat16  # target.p150.dtypes.embedding
HEAD_DTYPE = ttnn.bfloat8_b  # target.p150.dtypes.head
KEY_VALUE_DTYPE = ttnn.bfloat8_b  # target.p150.dtypes.key_value
HEADS_DTYPE = ACTIVATION_DTYPE  # the one type that the interleaved rotation takes
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

WAVES = (1, 2, 4, 8, 16, 32)  # target.p150.waves
LENGTHS = (64, 320, 640, 1280, 2048)  # target.p150.lengths
RAGGED_TOKENS = (256, 512, 768, 1280, 1792, 2560, 3840, 5632, 8192)  # target.p150.ragged_tokens

# A ragged pass holds at most so many rows, which share rows x tokens as they need, in whole blocks. They are packed by
# the last number: modelled microseconds of a pass without its attention, which costs a row the same in any wave.
# variant, rows, tokens a row, fill pages, read pages (to the padded end of any chunk), rows for the head, body digest
TRACES = (
    Shape("single", 1, 64, 2, 0, "last", "51922c6bb3013e7a", 10648),
    Shape("single", 1, 320, 10, 0, "last", "4d8a346a93b2b149", 13793),
    Shape("single", 1, 640, 20, 0, "last", "6452093551333263", 22287),
    Shape("single", 1, 1280, 40, 0, "last", "4d88c51f2d5c4107", 41414),
    Shape("single", 1, 2048, 64, 0, "last", "fc5422cdb6bc975d", 71011),
    Shape("ragged", 8, 32, 8, 0, "last", "109c87635723df75", 13316),
    Shape("ragged", 16, 32, 16, 0, "last", "c71cd469663ea4e1", 21810),
    Shape("ragged", 24, 32, 24, 0, "last", "1c601e9aa42d90f2", 31177),
    Shape("ragged", 20, 64, 40, 0, "last", "a855a8211db4e879", 41424),
    Shape("ragged", 28, 64, 56, 0, "last", "8d2f1720b2cd966b", 60444),
    Shape("ragged", 20, 128, 80, 0, "last", "7de8d96a5e37c967", 81386),
    Shape("ragged", 30, 128, 120, 0, "last", "7de88e747b9ecebd", 121537),
    Shape("ragged", 22, 256, 176, 0, "last", "e7b56a9c8722eaa8", 206482),
    Shape("ragged", 32, 256, 256, 0, "last", "5fb6999baa543aad", 304266),
    Shape("chunked", 1, 64, 2, 4120, "last", "844f3f658ce4f6f4"),
    Shape("chunked", 1, 320, 10, 4120, "last", "d14ab1f1c71a47cd"),
    Shape("chunked", 1, 640, 20, 4120, "last", "b05bc4f867e9636c"),
    Shape("chunked", 1, 1280, 40, 4120, "last", "5869327588c073e0"),
    Shape("chunked", 1, 2048, 64, 4120, "last", "f23988a36c57dbd2"),
    Shape("chunked_batched", 2, 64, 4, 4120, "last", "988cd33246e20b09"),
    Shape("chunked_batched", 4, 64, 8, 4120, "last", "0dc8a195da07d9ce"),
    Shape("chunked_batched", 8, 64, 16, 4120, "last", "f87302ef8d689d8d"),
    Shape("chunked_batched", 16, 64, 32, 4120, "last", "67e20f22eab40c89"),
    Shape("chunked_batched", 32, 64, 64, 4120, "last", "057b5478420a750d"),
    Shape("chunked_batched", 2, 320, 20, 4120, "last", "e28b1fc4fee761a1"),
    Shape("chunked_batched", 4, 320, 40, 4120, "last", "97619afc87267fbe"),
    Shape("chunked_batched", 8, 320, 80, 4120, "last", "b76133b592ad4372"),
    Shape("chunked_batched", 16, 320, 160, 4120, "last", "b0ae58d29edc2832"),
    Shape("chunked_batched", 2, 640, 40, 4120, "last", "cd81838bfae48442"),
    Shape("chunked_batched", 4, 640, 80, 4120, "last", "3ae35b35414ba7dc"),
    Shape("chunked_batched", 8, 640, 160, 4120, "last", "9c5475994d2184bd"),
    Shape("chunked_batched", 2, 1280, 80, 4120, "last", "dafd2ec88fdfa50b"),
    Shape("chunked_batched", 4, 1280, 160, 4120, "last", "627cf9e173600277"),
    Shape("chunked_batched", 2, 2048, 128, 4120, "last", "48011531cfe40835"),
    Shape("chunked_batched", 4, 2048, 256, 4120, "last", "f16183b86accbefa"),
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


def minimal(columns, rows, block_m, block_k, block_n, subblock_m, subblock_n):
    """Blocks of a matmul that fuses what follows it; all but the grid counts tiles."""
    return ttnn.MinimalMatmulConfig(
        compute_with_storage_grid_size=(columns, rows),
        M_block_size=block_m,
        K_block_size=block_k,
        N_block_size=block_n,
        subblock_h=subblock_m,
        subblock_w=subblock_n,
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
    ("query_key_value", 2): multicast_1d(11, 10, 8, 1, 3, 2, 3, 2, 3),
    ("query_key_value", 4): multicast_1d(11, 10, 8, 1, 3, 4, 3, 4, 3),
    ("query_key_value", 8): multicast_1d(11, 10, 8, 1, 3, 8, 3, 8, 3),
    ("query_key_value", 10): multicast_2d(11, 10, 8, 1, 3, 1, 27, 1, 27),
    ("query_key_value", 16): multicast_2d(11, 8, 8, 1, 4, 2, 28, 2, 28),
    ("query_key_value", 20): multicast_2d(11, 10, 8, 1, 4, 2, 28, 2, 28),
    ("query_key_value", 24): multicast_2d(11, 8, 8, 1, 4, 3, 28, 3, 28),
    ("query_key_value", 32): multicast_2d(11, 8, 6, 1, 4, 4, 28, 4, 28),
    ("query_key_value", 40): multicast_2d(11, 10, 6, 1, 4, 4, 28, 4, 28),
    ("query_key_value", 56): multicast_2d(11, 10, 6, 1, 4, 3, 28, 6, 28),
    ("query_key_value", 64): multicast_2d(11, 10, 8, 1, 3, 7, 9, 7, 27),
    ("query_key_value", 80): multicast_2d(11, 10, 6, 1, 4, 2, 28, 8, 28),
    ("query_key_value", 120): multicast_2d(11, 10, 8, 1, 4, 6, 4, 12, 28),
    ("query_key_value", 128): multicast_2d(11, 10, 3, 1, 4, 13, 4, 13, 28),
    ("query_key_value", 160): multicast_2d(11, 10, 6, 1, 4, 4, 28, 16, 28),
    ("query_key_value", 176): multicast_2d(11, 10, 8, 1, 4, 3, 28, 18, 28),
    ("query_key_value", 256): multicast_2d(11, 10, 8, 1, 4, 2, 28, 26, 28),
    ("attention_output", 2): multicast_1d(11, 10, 8, 1, 1, 2, 1, 2, 1),
    ("attention_output", 4): multicast_1d(11, 10, 8, 1, 1, 4, 1, 4, 1),
    ("attention_output", 8): multicast_2d(11, 8, 8, 1, 3, 1, 9, 1, 9),
    ("attention_output", 10): multicast_2d(11, 10, 8, 1, 3, 1, 9, 1, 9),
    ("attention_output", 16): multicast_2d(11, 8, 8, 1, 3, 2, 9, 2, 9),
    ("attention_output", 20): multicast_2d(11, 10, 8, 1, 3, 2, 9, 2, 9),
    ("attention_output", 24): multicast_2d(11, 8, 8, 1, 3, 3, 9, 3, 9),
    ("attention_output", 32): multicast_2d(11, 8, 8, 1, 3, 4, 9, 4, 9),
    ("attention_output", 40): multicast_2d(11, 10, 8, 1, 3, 4, 9, 4, 9),
    ("attention_output", 56): multicast_2d(11, 10, 8, 1, 3, 6, 9, 6, 9),
    ("attention_output", 64): multicast_2d(11, 10, 8, 1, 3, 7, 9, 7, 9),
    ("attention_output", 80): multicast_2d(11, 10, 8, 1, 3, 8, 9, 8, 9),
    ("attention_output", 120): multicast_2d(11, 10, 8, 1, 3, 12, 9, 12, 9),
    ("attention_output", 128): multicast_2d(11, 10, 6, 1, 3, 13, 3, 13, 9),
    ("attention_output", 160): multicast_2d(11, 10, 8, 1, 3, 8, 9, 16, 9),
    ("attention_output", 176): multicast_2d(11, 10, 8, 1, 3, 9, 9, 18, 9),
    ("attention_output", 256): multicast_2d(11, 10, 4, 1, 3, 13, 3, 26, 9),
    ("gate_up", 2): minimal(11, 10, 1, 8, 48, 1, 4),
    ("gate_up", 4): minimal(11, 10, 1, 8, 48, 1, 4),
    ("gate_up", 8): minimal(11, 10, 1, 8, 48, 1, 4),
    ("gate_up", 10): minimal(11, 10, 1, 8, 48, 1, 4),
    ("gate_up", 16): minimal(11, 10, 2, 6, 48, 1, 4),
    ("gate_up", 20): minimal(11, 10, 2, 6, 48, 1, 4),
    ("gate_up", 24): minimal(11, 10, 3, 8, 24, 1, 4),
    ("gate_up", 32): minimal(11, 10, 4, 8, 24, 1, 4),
    ("gate_up", 40): minimal(11, 10, 4, 8, 24, 1, 4),
    ("gate_up", 56): minimal(11, 10, 6, 8, 16, 1, 4),
    ("gate_up", 64): minimal(11, 10, 7, 8, 12, 1, 4),
    ("gate_up", 80): minimal(11, 10, 8, 8, 8, 1, 4),
    ("gate_up", 120): minimal(11, 10, 6, 8, 16, 1, 4),
    ("gate_up", 128): minimal(11, 10, 13, 8, 8, 1, 4),
    ("gate_up", 160): minimal(11, 10, 8, 8, 12, 1, 4),
    ("gate_up", 176): minimal(11, 10, 6, 8, 16, 1, 4),
    ("gate_up", 256): minimal(11, 10, 13, 8, 4, 1, 4),
    ("down", 2): multicast_1d(11, 10, 8, 1, 1, 2, 1, 2, 1),
    ("down", 4): multicast_1d(11, 10, 8, 1, 1, 4, 1, 4, 1),
    ("down", 8): multicast_2d(11, 8, 8, 1, 3, 1, 9, 1, 9),
    ("down", 10): multicast_2d(11, 10, 8, 1, 3, 1, 9, 1, 9),
    ("down", 16): multicast_2d(11, 8, 8, 1, 3, 2, 9, 2, 9),
    ("down", 20): multicast_2d(11, 10, 8, 1, 3, 2, 9, 2, 9),
    ("down", 24): multicast_2d(11, 8, 8, 1, 3, 3, 9, 3, 9),
    ("down", 32): multicast_2d(11, 8, 8, 1, 3, 4, 9, 4, 9),
    ("down", 40): multicast_2d(11, 10, 8, 1, 3, 4, 9, 4, 9),
    ("down", 56): multicast_2d(11, 10, 8, 1, 3, 6, 9, 6, 9),
    ("down", 64): multicast_2d(11, 10, 8, 1, 3, 7, 9, 7, 9),
    ("down", 80): multicast_2d(11, 10, 8, 1, 3, 8, 9, 8, 9),
    ("down", 120): multicast_2d(11, 10, 8, 1, 3, 12, 9, 12, 9),
    ("down", 128): multicast_2d(11, 10, 8, 1, 3, 13, 9, 13, 9),
    ("down", 160): multicast_2d(11, 10, 8, 1, 3, 8, 9, 16, 9),
    ("down", 176): multicast_2d(11, 10, 8, 1, 3, 9, 9, 18, 9),
    ("down", 256): multicast_2d(11, 10, 8, 1, 3, 13, 9, 26, 9),
    ("head", 1): multicast_1d(11, 10, 8, 1, 2, 1, 10, 1, 10),
}

# (variant, rows, tokens a row): how attention is cut
ATTENTION = {
    ("single", 1, 64): attention_chunks(32, 64),
    ("single", 1, 320): attention_chunks(64, 64),
    ("single", 1, 640): attention_chunks(64, 128),
    ("single", 1, 1280): attention_chunks(128, 256),
    ("single", 1, 2048): attention_chunks(128, 256),
    ("ragged", 8, 32): attention_chunks(128, 128),
    ("ragged", 16, 32): attention_chunks(64, 128),
    ("ragged", 24, 32): attention_chunks(128, 128),
    ("ragged", 20, 64): attention_chunks(128, 128),
    ("ragged", 28, 64): attention_chunks(128, 128),
    ("ragged", 20, 128): attention_chunks(128, 128),
    ("ragged", 30, 128): attention_chunks(128, 128),
    ("ragged", 22, 256): attention_chunks(128, 128),
    ("ragged", 32, 256): attention_chunks(128, 128),
    ("chunked", 1, 64): attention_chunks(32, 128),
    ("chunked", 1, 320): attention_chunks(64, 128),
    ("chunked", 1, 640): attention_chunks(64, 128),
    ("chunked", 1, 1280): attention_chunks(128, 128),
    ("chunked", 1, 2048): attention_chunks(128, 128),
    ("chunked_batched", 2, 64): attention_chunks(64, 128),
    ("chunked_batched", 4, 64): attention_chunks(64, 128),
    ("chunked_batched", 8, 64): attention_chunks(64, 128),
    ("chunked_batched", 16, 64): attention_chunks(64, 128),
    ("chunked_batched", 32, 64): attention_chunks(64, 128),
    ("chunked_batched", 2, 320): attention_chunks(64, 128),
    ("chunked_batched", 4, 320): attention_chunks(64, 128),
    ("chunked_batched", 8, 320): attention_chunks(64, 128),
    ("chunked_batched", 16, 320): attention_chunks(64, 128),
    ("chunked_batched", 2, 640): attention_chunks(128, 128),
    ("chunked_batched", 4, 640): attention_chunks(128, 128),
    ("chunked_batched", 8, 640): attention_chunks(128, 128),
    ("chunked_batched", 2, 1280): attention_chunks(128, 128),
    ("chunked_batched", 4, 1280): attention_chunks(128, 128),
    ("chunked_batched", 2, 2048): attention_chunks(128, 128),
    ("chunked_batched", 4, 2048): attention_chunks(128, 128),
}

# tiles of tokens in the pass: where a layer's intermediates lie, in the order normed, heads, attended, gated
PLACES = {
    2: Places(L1, L1, L1, L1),
    4: Places(L1, L1, L1, L1),
    8: Places(L1, L1, L1, L1),
    10: Places(L1, L1, L1, L1),
    16: Places(L1, L1, L1, L1),
    20: Places(L1, L1, L1, L1),
    24: Places(L1, L1, L1, L1),
    32: Places(L1, L1, L1, L1),
    40: Places(L1, L1, L1, L1),
    56: Places(L1, L1, L1, L1),
    64: Places(L1, L1, L1, L1),
    80: Places(L1, L1, L1, L1),
    120: Places(L1, L1, DRAM, DRAM),
    128: Places(L1, L1, L1, DRAM),
    160: Places(L1, DRAM, L1, DRAM),
    176: Places(L1, DRAM, L1, DRAM),
    256: Places(L1, DRAM, L1, DRAM),
}

# --- weights and stores: every long-lived device tensor -------------------------------------------------------------

HIDDEN_NORM = (1, 1, HIDDEN // TILE, TILE)  # the row-major form that rms_norm takes: rows of one tile's width

WEIGHTS = (
    Weight(
        "embedding", ("model.embed_tokens.weight",), "rows", (VOCABULARY, HIDDEN), EMBEDDING_DTYPE, ROW_MAJOR, REPLICATE
    ),
    Weight(
        "rotary_cos", (), "rotary_cos_interleaved_switched", (2 * CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE
    ),
    Weight(
        "rotary_sin", (), "rotary_sin_interleaved_switched", (2 * CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE
    ),
    Weight("final_norm", ("model.norm.weight",), "norm", HIDDEN_NORM, NORM_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("head", ("lm_head.weight",), "projection", (HIDDEN, VOCABULARY), HEAD_DTYPE, TILED, REPLICATE),
    Weight("rotary_transformation", (), "rotary_transformation", (1, 1, TILE, TILE), ROTARY_DTYPE, TILED, REPLICATE),
)
LAYER_WEIGHTS = (
    Weight(
        "attention_norm",
        ("model.layers.{layer}.input_layernorm.weight",),
        "norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "query_key_value",
        ("model.layers.{layer}.self_attn.qkv_proj.weight",),
        "rotary_projection",
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
        "mlp_norm",
        ("model.layers.{layer}.post_attention_layernorm.weight",),
        "norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "gate_up",
        ("model.layers.{layer}.mlp.gate_up_proj.weight",),
        "paired_projection",
        (HIDDEN, 2 * INTERMEDIATE),
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


def ragged_inputs(shape):
    """A wave also states where each row begins, whatever its length, and where the last one ends."""
    return (*packed_inputs(shape), Input("row_bounds", (shape.rows + 1,), ttnn.int32, "changed"))


def chunked_inputs(shape):
    """Chunks also read the blocks of their rows from the first one on, and state the one position that all start at."""
    return (
        *packed_inputs(shape),
        Input("read_table", (shape.rows, shape.read_pages), ttnn.int32, "always"),
        Input("start", (1,), ttnn.int32, "always"),
    )


INPUTS = {
    "single": packed_inputs,
    "ragged": ragged_inputs,
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


def rotate_pairs(heads, cos, sin, transformation, place):
    """Turn neighbouring columns of each head; the weights were permuted to lie so when they were loaded."""
    return ttnn.experimental.rotary_embedding_llama(
        heads,
        cos,
        sin,
        transformation,
        is_decode_mode=False,
        memory_config=place.heads,
        compute_kernel_config=ROTARY_COMPUTE,
    )


def attend_single(query, key, value, key_cache, value_cache, inputs, shape):
    """One row over its own keys and values, which are all in the pass: [1, 1, tokens, QUERY_WIDTH]."""
    return ttnn.transformer.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=True,
        scale=ATTENTION_SCALE,
        output_concat_heads=True,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION["single", shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )


def attend_ragged(query, key, value, key_cache, value_cache, inputs, shape):
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
        program_config=ATTENTION["ragged", shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )


def attend_chunked(query, key, value, key_cache, value_cache, inputs, shape):
    """A chunk over everything that its row has in the cache, the chunk itself included."""
    attended = ttnn.transformer.chunked_scaled_dot_product_attention(
        query,
        key_cache,
        value_cache,
        inputs.read_table,
        chunk_start_idx_tensor=inputs.start,
        scale=ATTENTION_SCALE,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION["chunked", shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )
    return ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended)


def attend_chunked_batched(query, key, value, key_cache, value_cache, inputs, shape):
    """Chunks of several rows that start at one position: queries become a batch, since each row has its own cache."""
    rows = ttnn.transpose(
        ttnn.reshape(query, (QUERY_HEADS, shape.rows, shape.tokens, HEAD_DIM)),
        0,
        1,
        memory_config=PLACES[shape.token_tiles].heads,
    )
    attended = ttnn.transformer.chunked_scaled_dot_product_attention(
        rows,
        key_cache,
        value_cache,
        inputs.read_table,
        chunk_start_idx_tensor=inputs.start,
        scale=ATTENTION_SCALE,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION["chunked_batched", shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )
    ttnn.deallocate(rows)
    joined = ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended)
    return ttnn.reshape(joined, (1, 1, shape.rows * shape.tokens, QUERY_WIDTH))


ATTEND = {
    "single": attend_single,
    "ragged": attend_ragged,
    "chunked": attend_chunked,
    "chunked_batched": attend_chunked_batched,
}


def attention(hidden, cos, sin, transformation, layer, key_cache, value_cache, inputs, shape):
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
    query = rotate_pairs(query, cos, sin, transformation, place)
    key = rotate_pairs(key, cos, sin, transformation, place)
    key = ttnn.typecast(key, KEY_VALUE_DTYPE, memory_config=place.heads)
    value = ttnn.typecast(value, KEY_VALUE_DTYPE, memory_config=place.heads)
    ttnn.experimental.paged_fill_cache(key_cache, key, inputs.fill_table, batch_idx=0)
    ttnn.experimental.paged_fill_cache(value_cache, value, inputs.fill_table, batch_idx=0)
    attended = ATTEND[shape.variant](query, key, value, key_cache, value_cache, inputs, shape)
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
    summed = ttnn.add(hidden, projected, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(hidden)
    return summed


def mlp(hidden, layer, shape):
    """Add the gated feed-forward of one layer, down(silu(gate(x)) * up(x)), to hidden, which is used up."""
    place = PLACES[shape.token_tiles]
    normed = ttnn.rms_norm(
        hidden,
        epsilon=NORM_EPSILON,
        weight=layer.mlp_norm,
        memory_config=place.normed,
        compute_kernel_config=NORM_COMPUTE,
    )
    gated = ttnn.experimental.minimal_matmul(
        normed,
        layer.gate_up,
        config=MATMULS["gate_up", shape.token_tiles],
        memory_config=place.gated,
        dtype=ACTIVATION_DTYPE,
        compute_kernel_config=MATMUL_COMPUTE,
        fuse_swiglu=True,
    )
    ttnn.deallocate(normed)
    fed = ttnn.linear(
        gated,
        layer.down,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["down", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    ttnn.deallocate(gated)
    summed = ttnn.add(hidden, fed, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(hidden)
    return summed


def layers(hidden, cos, sin, inputs, weights, stores, shape):
    """All layers over hidden [1, 1, tokens, HIDDEN], which is used up; each writes the pass's keys and values."""
    for layer, key_cache, value_cache in zip(weights.layers, stores.keys, stores.values):
        hidden = attention(
            hidden, cos, sin, weights.rotary_transformation, layer, key_cache, value_cache, inputs, shape
        )
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
