"""Prefill of qwen3-30b-a3b on p150. Written by codegen, do not edit.

Rebuild:   codegen build qwen3-30b-a3b --target p150
Manifest:  models/qwen3-30b-a3b.toml
Geometry:  1b8d4bd1f8a3dbe9

    48 layers of 2048 hidden and 768 intermediate, 32 query and 4 key-value heads of 128, 151936 vocabulary
    40960 tokens of context, 4096 key-value blocks of 32 tokens
    bfloat8_b weights, bfloat8_b keys and values, bfloat16 activations

    variant          rows            tokens a row
    single           1               32 192 640 1280 2048
    ragged           up to 16        512 together
    ragged           up to 24        1536 together
    ragged           up to 32        4096 together
    chunked          1               32 192 640 1280 2048
"""

from runtime.backend import ttnn
from runtime.tables import REPLICATE, Board, Experts, Geometry, Input, Places, Rope, Routing, Shape, Store, Weight

# --- constants: geometry, precision, memory and compute -------------------------------------------------------------

MODEL = "qwen3-30b-a3b"
TARGET = "p150"

VOCABULARY = 151936  # model.vocabulary
HIDDEN = 2048  # model.hidden
EXPERTS = 128  # model.experts.count
EXPERTS_PER_TOKEN = 8  # model.experts.per_token
EXPERT_WIDTH = 768  # model.experts.intermediate
LAYERS = 48  # model.layers
QUERY_HEADS = 32  # model.query_heads
KEY_VALUE_HEADS = 4  # model.key_value_heads
HEAD_DIM = 128  # model.head_dim
QUERY_WIDTH = 4096  # 32 query heads x 128
QUERY_KEY_VALUE_WIDTH = 5120  # (32 query + 2 x 4 key-value heads) x 128
ATTENTION_SCALE = 0.0883883461356163  # 128 ** -0.5, rounded to float32
NORM_EPSILON = 1e-06  # model.norm_epsilon
ROTARY_STYLE = "half_split"  # model.head_dim

TILE = 32
ROW_SLOTS = TILE  # last rows that one pass can pick: one tile of rows
TOP_K = 32  # candidates that sampling draws from: one tile of columns
CONTEXT = 40960  # target.p150.context
BLOCK_SIZE = 32  # target.p150.block_size
KEY_VALUE_BLOCKS = 4096  # target.p150.key_value_blocks
MOST_TOKENS = 4096  # of a pass: the constants of routing are this large
PREFILL_CHUNK = 2048  # target.p150.prefill_chunk
ALIGNMENT = 128  # lcm(32 block, 128 attention chunk)

GEOMETRY = Geometry(
    vocabulary=151936,
    hidden=HIDDEN,
    intermediate=768,
    layers=LAYERS,
    query_heads=32,
    key_value_heads=4,
    head_dim=HEAD_DIM,
    norm_epsilon=NORM_EPSILON,
    query_key_value_bias=False,
    query_key_norm=True,
    tied_embeddings=False,
    rope=Rope(
        kind="default",
        theta=1000000.0,
        dimensions=128,
    ),
    fused_projections=False,
    experts=Experts(
        count=EXPERTS,
        per_token=EXPERTS_PER_TOKEN,
        intermediate=768,
        renormalise=True,
        published="qwen3_moe",
        biases=False,
        activation="silu",
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
EXPERT_DTYPE = ttnn.bfloat4_b  # target.p150.dtypes.experts
ROUTER_DTYPE = ttnn.bfloat16  # as published
ROUTING_DTYPE = ttnn.bfloat16  # exact: its constants are 0, 1 and 32
INDEX_DTYPE = ttnn.uint32
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
ROUTING_COMPUTE = ttnn.WormholeComputeKernelConfig(  # whole numbers stay exact
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
EXPERT_COMPUTE = ttnn.WormholeComputeKernelConfig(  # LoFi for bfloat4_b; the kernel rules the other flags out
    math_fidelity=ttnn.MathFidelity.LoFi, math_approx_mode=False, fp32_dest_acc_en=False, packer_l1_acc=False
)
EXPERT_GRID = ttnn.CoreCoord(11, 10)  # no more columns than tiles of EXPERT_WIDTH, and no more rows than columns

# --- tables: the closed set of passes and their programs ------------------------------------------------------------

WAVES = (1,)  # target.p150.waves
LENGTHS = (32, 192, 640, 1280, 2048)  # target.p150.lengths
RAGGED_TOKENS = (512, 1536, 4096)  # target.p150.ragged_tokens

# A ragged pass holds at most so many rows, which share rows x tokens as they need, in whole blocks. They are packed by
# the last number: modelled microseconds of a pass without its attention, which costs a row the same in any wave.
# variant, rows, tokens a row, fill pages, read pages (to the padded end of any chunk), rows for the head, body digest
TRACES = (
    Shape("single", 1, 32, 1, 0, "last", "4a6eb075e4769e52", 58757),
    Shape("single", 1, 192, 6, 0, "last", "98af8dad3639b875", 71875),
    Shape("single", 1, 640, 20, 0, "last", "1e06be4efd36603a", 98261),
    Shape("single", 1, 1280, 40, 0, "last", "e989b4f5e673a3aa", 137673),
    Shape("single", 1, 2048, 64, 0, "last", "ad5f14264e7819b3", 188530),
    Shape("ragged", 16, 32, 16, 0, "last", "11f4751ba1f6264a", 91220),
    Shape("ragged", 24, 64, 48, 0, "last", "048b81ace0170652", 155020),
    Shape("ragged", 32, 128, 128, 0, "last", "472a8754e81e89a2", 320322),
    Shape("chunked", 1, 32, 1, 1304, "last", "198ac0f4f2c90242"),
    Shape("chunked", 1, 192, 6, 1304, "last", "7735281bd148130c"),
    Shape("chunked", 1, 640, 20, 1304, "last", "5d30ad234e63c8b3"),
    Shape("chunked", 1, 1280, 40, 1304, "last", "d2dbabf8a90b192a"),
    Shape("chunked", 1, 2048, 64, 1304, "last", "35798eaf4c6b8636"),
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
    ("query_key_value", 1): multicast_1d(11, 10, 8, 1, 1, 1, 2, 1, 2),
    ("query_key_value", 6): multicast_1d(11, 10, 8, 2, 2, 6, 2, 6, 2),
    ("query_key_value", 16): multicast_2d(11, 8, 8, 1, 4, 2, 16, 2, 16),
    ("query_key_value", 20): multicast_2d(11, 10, 8, 1, 4, 2, 16, 2, 16),
    ("query_key_value", 40): multicast_2d(11, 10, 8, 1, 4, 4, 16, 4, 16),
    ("query_key_value", 48): multicast_2d(11, 10, 8, 1, 4, 5, 16, 5, 16),
    ("query_key_value", 64): multicast_2d(11, 10, 8, 1, 4, 7, 16, 7, 16),
    ("query_key_value", 128): multicast_2d(11, 10, 8, 1, 4, 13, 4, 13, 16),
    ("attention_output", 1): multicast_1d(11, 10, 8, 1, 1, 1, 1, 1, 1),
    ("attention_output", 6): multicast_2d(11, 6, 8, 1, 2, 1, 6, 1, 6),
    ("attention_output", 16): multicast_2d(11, 8, 8, 1, 3, 2, 6, 2, 6),
    ("attention_output", 20): multicast_2d(11, 10, 8, 1, 3, 2, 6, 2, 6),
    ("attention_output", 40): multicast_2d(11, 10, 8, 1, 3, 4, 6, 4, 6),
    ("attention_output", 48): multicast_2d(11, 10, 8, 1, 3, 5, 6, 5, 6),
    ("attention_output", 64): multicast_2d(11, 10, 8, 1, 3, 7, 6, 7, 6),
    ("attention_output", 128): multicast_2d(11, 10, 8, 1, 3, 13, 6, 13, 6),
    ("router", 1): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("router", 6): multicast_2d(11, 6, 8, 1, 1, 1, 1, 1, 1),
    ("router", 16): multicast_2d(11, 8, 8, 2, 1, 2, 1, 2, 1),
    ("router", 20): multicast_2d(11, 10, 8, 2, 1, 2, 1, 2, 1),
    ("router", 40): multicast_2d(11, 10, 8, 4, 1, 4, 1, 4, 1),
    ("router", 48): multicast_2d(11, 10, 8, 1, 1, 5, 1, 5, 1),
    ("router", 64): multicast_2d(11, 10, 8, 1, 1, 7, 1, 7, 1),
    ("router", 128): multicast_2d(11, 10, 8, 1, 1, 13, 1, 13, 1),
    ("counts", 1): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("counts", 6): multicast_2d(11, 1, 6, 1, 1, 1, 1, 1, 1),
    ("counts", 16): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("counts", 20): multicast_2d(11, 1, 5, 1, 1, 1, 1, 1, 1),
    ("counts", 40): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("counts", 48): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("counts", 64): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("counts", 128): multicast_2d(11, 1, 8, 1, 1, 1, 1, 1, 1),
    ("starts", 1): multicast_2d(11, 1, 4, 1, 1, 1, 1, 1, 1),
    ("starts", 6): multicast_2d(11, 1, 4, 1, 1, 1, 1, 1, 1),
    ("starts", 16): multicast_2d(11, 1, 4, 1, 1, 1, 1, 1, 1),
    ("starts", 20): multicast_2d(11, 1, 4, 1, 1, 1, 1, 1, 1),
    ("starts", 40): multicast_2d(11, 1, 4, 1, 1, 1, 1, 1, 1),
    ("starts", 48): multicast_2d(11, 1, 4, 1, 1, 1, 1, 1, 1),
    ("starts", 64): multicast_2d(11, 1, 4, 1, 1, 1, 1, 1, 1),
    ("starts", 128): multicast_2d(11, 1, 4, 1, 1, 1, 1, 1, 1),
    ("ranks", 1): multicast_2d(11, 1, 1, 1, 1, 1, 1, 1, 1),
    ("ranks", 6): multicast_2d(11, 6, 6, 1, 1, 1, 1, 1, 1),
    ("ranks", 16): multicast_2d(11, 8, 8, 2, 1, 2, 1, 2, 1),
    ("ranks", 20): multicast_2d(11, 10, 5, 2, 1, 2, 1, 2, 1),
    ("ranks", 40): multicast_2d(11, 10, 8, 4, 1, 4, 1, 4, 1),
    ("ranks", 48): multicast_2d(11, 10, 8, 1, 1, 5, 1, 5, 1),
    ("ranks", 64): multicast_2d(11, 10, 8, 1, 1, 7, 1, 7, 1),
    ("ranks", 128): multicast_2d(11, 10, 8, 1, 1, 13, 1, 13, 1),
    ("head", 1): multicast_1d(11, 10, 8, 1, 4, 1, 44, 1, 44),
}

# (variant, rows, tokens a row): how attention is cut
ATTENTION = {
    ("single", 1, 32): attention_chunks(32, 32),
    ("single", 1, 192): attention_chunks(64, 64),
    ("single", 1, 640): attention_chunks(64, 128),
    ("single", 1, 1280): attention_chunks(128, 256),
    ("single", 1, 2048): attention_chunks(128, 256),
    ("ragged", 16, 32): attention_chunks(64, 128),
    ("ragged", 24, 64): attention_chunks(128, 128),
    ("ragged", 32, 128): attention_chunks(128, 128),
    ("chunked", 1, 32): attention_chunks(32, 128),
    ("chunked", 1, 192): attention_chunks(64, 128),
    ("chunked", 1, 640): attention_chunks(64, 128),
    ("chunked", 1, 1280): attention_chunks(128, 128),
    ("chunked", 1, 2048): attention_chunks(128, 128),
}

# tiles of tokens in the pass: where a layer's intermediates lie, in the order normed, heads, attended, gated
PLACES = {
    1: Places(L1, L1, L1, DRAM),
    6: Places(L1, L1, L1, DRAM),
    16: Places(L1, L1, L1, DRAM),
    20: Places(L1, L1, L1, DRAM),
    40: Places(L1, L1, L1, DRAM),
    48: Places(L1, L1, L1, DRAM),
    64: Places(L1, L1, L1, DRAM),
    128: Places(L1, L1, L1, DRAM),
}

# --- weights and stores: every long-lived device tensor -------------------------------------------------------------

HIDDEN_NORM = (1, 1, HIDDEN // TILE, TILE)  # the row-major form that rms_norm takes: rows of one tile's width
HEAD_NORM = (1, 1, HEAD_DIM // TILE, TILE)

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
        (
            "model.layers.{layer}.self_attn.q_proj.weight",
            "model.layers.{layer}.self_attn.k_proj.weight",
            "model.layers.{layer}.self_attn.v_proj.weight",
        ),
        "projection",
        (HIDDEN, QUERY_KEY_VALUE_WIDTH),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "query_norm",
        ("model.layers.{layer}.self_attn.q_norm.weight",),
        "norm",
        HEAD_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "key_norm",
        ("model.layers.{layer}.self_attn.k_norm.weight",),
        "norm",
        HEAD_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
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
        "router",
        ("model.layers.{layer}.mlp.gate.weight",),
        "projection",
        (HIDDEN, EXPERTS),
        ROUTER_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "gate",
        ("model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",),
        "expert_gate",
        (HIDDEN, EXPERT_WIDTH),
        EXPERT_DTYPE,
        TILED,
        REPLICATE,
        experts=EXPERTS,
        otherwise=("model.layers.{layer}.mlp.experts.gate_up_proj",),
    ),
    Weight(
        "up",
        ("model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",),
        "expert_up",
        (HIDDEN, EXPERT_WIDTH),
        EXPERT_DTYPE,
        TILED,
        REPLICATE,
        experts=EXPERTS,
        otherwise=("model.layers.{layer}.mlp.experts.gate_up_proj",),
    ),
    Weight(
        "down",
        ("model.layers.{layer}.mlp.experts.{expert}.down_proj.weight",),
        "expert_down",
        (EXPERT_WIDTH, HIDDEN),
        EXPERT_DTYPE,
        TILED,
        REPLICATE,
        experts=EXPERTS,
        otherwise=("model.layers.{layer}.mlp.experts.down_proj",),
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


ATTEND = {
    "single": attend_single,
    "ragged": attend_ragged,
    "chunked": attend_chunked,
}


def attention(hidden, cos, sin, layer, key_cache, value_cache, inputs, shape):
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
        activation=ttnn.RoutedExpertActivation.Silu,
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


def layers(hidden, cos, sin, inputs, weights, stores, shape):
    """All layers over hidden [1, 1, tokens, HIDDEN], which is used up; each writes the pass's keys and values."""
    routing = routing_tables(weights, shape)
    for layer, key_cache, value_cache in zip(weights.layers, stores.keys, stores.values):
        hidden = attention(hidden, cos, sin, layer, key_cache, value_cache, inputs, shape)
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
