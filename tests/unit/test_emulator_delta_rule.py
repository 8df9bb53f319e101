"""The emulated gated delta rule: near a recurrence in float64, equal in every cut of the tokens, refused where it must be."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import runtime.emulator as ttnn
from runtime.emulator.operations import delta_rule as operation
from runtime.emulator.operations.delta_rule_math import delta_rule, normalised, unit_lower_inverse
from tests.support.emulated import bits, open_checked, rows, tiles
from tests.support.recurrence import Drawn, draw, token_by_token, unit_rows

COMPUTE = ttnn.WormholeComputeKernelConfig(
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
LIKENESS = (0.0, 0.5, 0.97, 0.999)  # of keys to one another
DECAYS = ("slow", "fast", "mixed", "1e-12", "none")


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((found - wanted).norm() / wanted.norm()).item()


def constants(device: ttnn.Device, chunk: int = 32) -> dict[str, ttnn.Tensor]:
    ones = torch.ones(1, 1, chunk, chunk)
    values = {
        "eye": torch.eye(chunk)[None, None],
        "tril": ones.tril(),
        "ones": ones,
        "masks": operation.quadrant_masks(),
    }
    return {name: tiles(device, value, ttnn.float32) for name, value in values.items()}


def run(
    device: ttnn.Device, drawn: Drawn, state: ttnn.Tensor | None = None, flat: bool = True, **changes: Any
) -> tuple:
    """The operation on a device: raw inputs of three dimensions, or of four."""

    def shaped(values: torch.Tensor) -> torch.Tensor:
        return values.flatten(2) if flat else values

    options: dict[str, Any] = {
        "initial_state": tiles(device, drawn.state, ttnn.float32) if state is None else state,
        "output_final_state": True,
        "chunk_size": 32,
        "output_head_major": True,
        "program_config": ttnn.ChunkGdnPhasedProgramConfig(),
        "memory_config": ttnn.DRAM_MEMORY_CONFIG,
        "compute_kernel_config": COMPUTE,
        **constants(device, changes.get("chunk_size", 32)),
    } | changes
    return ttnn.transformer.chunk_gated_delta_rule(
        *(tiles(device, shaped(values)) for values in (drawn.q, drawn.k, drawn.v)),
        tiles(device, drawn.g, ttnn.float32),
        tiles(device, drawn.beta, ttnn.float32),
        **options,
    )


# --- the numbers ---


@pytest.mark.parametrize("chunk", (32, 64))
@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("likeness", LIKENESS)
def test_the_chunked_form_is_the_recurrence_to_1e_5(likeness: float, decay: str, chunk: int) -> None:
    drawn = draw(1, tokens=192, likeness=likeness, decay=decay)
    output, state = delta_rule(
        normalised(drawn.q, drawn.q.shape[-1] ** -0.5),
        normalised(drawn.k),
        drawn.v,
        drawn.g,
        drawn.beta,
        drawn.state,
        chunk,
    )
    wanted, behind = token_by_token(drawn)
    assert max(relative(output, wanted), relative(state, behind)) <= 1e-5


@pytest.mark.parametrize("chunk", (32, 64))
def test_equal_keys_replace_what_was_written(chunk: int) -> None:
    """beta = 1, no decay: each token overwrites the one before, and every power of the system grows like a binomial."""
    key = torch.zeros(1, 128, 1, 32)
    key[..., 3] = 1.0
    values = torch.randn(1, 128, 1, 32, generator=torch.Generator().manual_seed(0))
    nothing = torch.zeros(1, 128, 1)
    output, state = delta_rule(key, key, values, nothing, nothing + 1, torch.zeros(1, 1, 32, 32), chunk)
    assert relative(output[0], values[0, :, 0]) <= 1e-6
    assert relative(state[0, 0, 3], values[0, -1, 0]) <= 1e-6 and state.count_nonzero() == 32


def test_the_inverse_of_likeness_one_has_no_large_part() -> None:
    """The inverse of ones below the diagonal is two diagonals of 1 and -1, exactly."""
    inverse = unit_lower_inverse(torch.ones(2, 64, 64).tril(-1))
    assert torch.equal(inverse, (torch.eye(64) - torch.ones(64, 64).tril(-1).triu(-1)).expand(2, 64, 64))


def test_a_decay_that_float32_cannot_hold_the_inverse_of_leaves_no_infinity() -> None:
    drawn = draw(2, tokens=64, decay="mixed")
    output, state = delta_rule(drawn.q, normalised(drawn.k), drawn.v, drawn.g * 0 - 80.0, drawn.beta, drawn.state, 32)
    assert bool(output.isfinite().all()) and bool(state.isfinite().all())


@pytest.mark.parametrize("chunk", (32, 64))
@pytest.mark.parametrize("threads", (1, 2))
def test_how_tokens_are_cut_into_calls_changes_no_bit(chunk: int, threads: int) -> None:
    drawn = draw(3, tokens=576, value_heads=6, key_heads=2)
    q, k = normalised(drawn.q), normalised(drawn.k)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        whole = delta_rule(q, k, drawn.v, drawn.g, drawn.beta, drawn.state, chunk)
        for cuts in ((64,) * 9, (64, 512), (512, 64), (192, 384), (320, 64, 192)):
            state, parts = drawn.state, []
            for piece in zip(*(values.split(cuts, 1) for values in (q, k, drawn.v, drawn.g, drawn.beta))):
                part, state = delta_rule(*piece, state, chunk)
                parts.append(part)
            assert torch.equal(torch.cat(parts, 1), whole[0]), cuts
            assert torch.equal(state, whole[1]), cuts
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("precision", ("declared", "float32"))
def test_rows_together_and_apart_and_in_any_cut_are_equal_in_every_bit(precision: str) -> None:
    device = open_checked(precision)
    drawn = draw(4, batch=3, tokens=160)
    output, state = run(device, drawn)
    for row in range(3):
        own = drawn.row(row)
        carried = tiles(device, own.state, ttnn.float32)
        parts = []
        for first, last in ((0, 32), (32, 128), (128, 160)):
            part, carried = run(device, own.cut(first, last), carried)
            parts.append(bits(part))
        assert torch.equal(torch.cat(parts, 1), bits(output).unflatten(0, (3, -1))[row])
        assert torch.equal(bits(carried)[0], bits(state)[row])


def test_the_operation_takes_bfloat16_and_keeps_float32() -> None:
    device = open_checked()
    drawn = draw(5, tokens=96)
    output, state = run(device, drawn)
    held = drawn._replace(**{name: getattr(drawn, name).bfloat16().float() for name in "qkv"})
    wanted, behind = token_by_token(held)
    assert output.dtype is state.dtype is ttnn.float32
    assert relative(ttnn.to_torch(output), wanted) <= 1e-5 and relative(ttnn.to_torch(state), behind) <= 1e-5


@pytest.mark.parametrize(("key_dim", "value_dim", "chunk"), [(32, 64, 32), (64, 32, 64), (32, 32, 64)])
def test_heads_of_four_dimensions_come_normalised(key_dim: int, value_dim: int, chunk: int) -> None:
    device = open_checked("float32")
    drawn = draw(6, tokens=128, key_dim=key_dim, value_dim=value_dim)
    unit = drawn._replace(q=unit_rows(drawn.q).float(), k=unit_rows(drawn.k).float())
    output, state = run(device, unit, flat=False, chunk_size=chunk)
    wanted, behind = token_by_token(drawn)
    assert relative(ttnn.to_torch(output), wanted) <= 1e-5 and relative(ttnn.to_torch(state), behind) <= 1e-5


def test_padding_with_no_decay_and_no_update_leaves_the_state() -> None:
    device = open_checked()
    drawn = draw(7, tokens=64)
    valid = (torch.arange(64) < 20)[None, :, None].float()
    _, padded = run(device, drawn._replace(g=drawn.g * valid, beta=drawn.beta * valid))
    other = draw(8, tokens=64)
    mixed = {name: torch.cat((getattr(drawn, name)[:, :20], getattr(other, name)[:, 20:]), 1) for name in "qkv"}
    _, again = run(device, drawn._replace(g=drawn.g * valid, beta=drawn.beta * valid, **mixed))
    nothing = drawn._replace(g=drawn.g * 0, beta=drawn.beta * 0)
    assert torch.equal(bits(padded), bits(again))
    assert torch.equal(ttnn.to_torch(run(device, nothing)[1]), drawn.state)


def test_without_the_final_state_there_is_none() -> None:
    output, state = run(open_checked(), draw(9, tokens=32), output_final_state=False)
    assert state is None and list(output.shape) == [4, 32, 32]


def test_it_is_faster_than_twice_the_reference_of_transformers() -> None:
    reference = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next").torch_chunk_gated_delta_rule
    for tokens in (512, 4096):
        drawn = draw(10, tokens=tokens, key_dim=64, value_dim=64)

        def ours() -> None:
            delta_rule(normalised(drawn.q, 0.125), normalised(drawn.k), *drawn[2:], 32)

        def theirs() -> None:
            reference(*drawn[:5], initial_state=drawn.state, output_final_state=True, use_qk_l2norm_in_kernel=True)

        assert seconds(ours) <= 2 * seconds(theirs), f"{tokens} tokens"


def seconds(call: Any) -> float:
    """The least of five runs behind one that warms up."""
    call()
    found = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


# --- refusals ---


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"program_config": None}, "must be stated"),
        ({"program_config": ttnn.ChunkGdnMonoProgramConfig()}, "only ttnn.ChunkGdnPhasedProgramConfig"),
        ({"output_head_major": False}, "output_head_major=True"),
        ({"masks": None}, "got 3 of them"),
        ({"chunk_size": 64}, "need chunk_size 32, got 64"),
        ({"chunk_size": 16}, "must be 32 or 64, got 16"),
        (
            {"compute_kernel_config": ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi2)},
            "HiFi4 with fp32_dest_acc_en",
        ),
    ],
)
def test_what_is_not_modelled_or_not_legal_is_refused(changes: dict, words: str) -> None:
    with pytest.raises(ttnn.EmulatorError, match="chunk_gated_delta_rule: .*") as refusal:
        run(open_checked(), draw(11, tokens=32), **changes)
    assert words in str(refusal.value)


def test_more_heads_than_cores_are_refused_with_both_numbers() -> None:
    drawn = draw(12, batch=3, tokens=32, key_heads=1, value_heads=22)
    with pytest.raises(ttnn.EmulatorError, match="3 rows of 22 value heads are 66, which exceeds the 64 cores of n150"):
        run(open_checked(), drawn)
    run(open_checked(), drawn.row(0))


@pytest.mark.parametrize(("value", "words"), [(1e-3, "values up to 0.001"), (float("nan"), "a NaN")])
def test_a_decay_that_grows_is_refused(value: float, words: str) -> None:
    drawn = draw(13, tokens=32)
    drawn.g[0, 7, 1] = value
    with pytest.raises(ttnn.EmulatorError, match=f"g must be 0 or below.*{words}"):
        run(open_checked(), drawn)


@pytest.mark.parametrize("name", ("eye", "tril", "ones", "masks"))
def test_wrong_constants_are_refused(name: str) -> None:
    device = open_checked()
    wrong = ttnn.to_torch(constants(device)[name])
    wrong[0, 0, 5, 4] = 0.5
    with pytest.raises(ttnn.EmulatorError, match=f"{name} must hold"):
        run(device, draw(14, tokens=32), **{name: tiles(device, wrong, ttnn.float32)})


def test_the_memory_between_its_phases_counts_while_it_runs_and_is_given_back() -> None:
    device = open_checked()
    drawn = draw(15, tokens=64)
    run(device, drawn)
    (made,) = [plan for key, plan in device.programs.items() if key[0] == "chunk_gated_delta_rule"]
    before = device.memory_view()
    device.reset_peak()
    run(device, drawn)
    after = device.memory_view()
    grown = after.peak_bytes_allocated_per_bank - before.total_bytes_allocated_per_bank
    between = 4 * (64 // 32) * 7 * 32 * 32 * 4  # seven tiles of every chunk of every head
    assert sum(spec.pages * spec.page_bytes for spec in made.scratch) == between
    assert grown * after.num_banks > between
    assert after.total_bytes_allocated_per_bank == before.total_bytes_allocated_per_bank


def test_the_fused_program_gives_the_same_bits_and_keeps_nothing_in_dram_between_its_phases() -> None:
    device = open_checked()
    drawn = draw(16, tokens=128)
    for one, other in zip(run(device, drawn), run(device, drawn, program_config=ttnn.ChunkGdnFusedProgramConfig())):
        assert torch.equal(bits(one), bits(other))
    plans = [plan for key, plan in device.programs.items() if key[0] == "chunk_gated_delta_rule"]
    assert sorted(len(plan.scratch) for plan in plans) == [0, 7]


@pytest.mark.parametrize(("heads", "fits"), [(32, True), (33, False)])
def test_the_fused_program_takes_two_cores_for_each_head(heads: int, fits: bool) -> None:
    device, fused = open_checked(), ttnn.ChunkGdnFusedProgramConfig()
    drawn = draw(17, tokens=32, value_heads=heads, key_heads=1)
    if fits:
        run(device, drawn, program_config=fused)
        return
    with pytest.raises(
        ttnn.EmulatorError, match="33 value heads of all rows take 66 of the 64 cores of n150 in the fused"
    ):
        run(device, drawn, program_config=fused)


@pytest.mark.parametrize(
    ("grid", "heads", "chunk", "key_dim", "value_dim", "wanted"),
    [
        ((8, 8), 4, 32, 32, 32, 165888),
        ((8, 8), 4, 32, 64, 64, 221184),
        ((8, 8), 32, 32, 128, 128, 331776),
        ((8, 8), 48, 32, 128, 128, 409600),
        ((8, 8), 20, 32, 192, 192, 446464),
        ((8, 8), 17, 32, 256, 256, 720896),
        ((8, 8), 4, 64, 64, 64, 466944),
        ((8, 8), 4, 64, 32, 64, 376832),
        ((8, 8), 4, 64, 128, 128, 688128),
        ((11, 10), 50, 32, 128, 128, 331776),
        ((11, 10), 51, 32, 128, 128, 409600),
        ((11, 10), 31, 32, 96, 96, 276480),
    ],
)
def test_buffers_are_those_of_the_library(
    grid: tuple[int, int], heads: int, chunk: int, key_dim: int, value_dim: int, wanted: int
) -> None:
    """Read off graphs of mock devices."""
    assert operation.buffer_bytes(grid, heads, chunk, key_dim, value_dim) == wanted


# --- a layer's carry, in a trace ---


def test_a_recorded_layer_carries_its_state_from_replay_to_replay() -> None:
    """Convolution, rule and both carries are written in place: replays continue where the one before ended."""
    device = open_checked(trace_region_size=2**24)
    pieces = [draw(20 + index, tokens=32) for index in range(3)]
    width = 3 * 2 * 32 + 2 * 32  # q and k of two heads, v of four
    mixed = [torch.randn(1, 32, width, generator=torch.Generator().manual_seed(30 + index)) for index in range(3)]
    taps = [
        tiles(device, torch.randn(1, 1, 1, width, generator=torch.Generator().manual_seed(index))) for index in range(4)
    ]
    fixed = constants(device)
    start = rows(device, torch.zeros(1), ttnn.uint32)

    def layer(x, g, beta, state, tail):
        q, k, v = ttnn.experimental.kda.qkv_causal_conv1d_silu(
            x,
            tail,
            *taps,
            64,
            64,
            128,
            program_config=ttnn.QkvCausalConv1dSiluProgramConfig(channel_chunk_size=64),
            actual_start=start,
            predecessor_carry=tail,
        )
        last = ttnn.slice(ttnn.to_layout(x, ttnn.ROW_MAJOR_LAYOUT), (0, 29, 0), (1, 32, width))
        ttnn.copy(last, tail)
        output, behind = ttnn.transformer.chunk_gated_delta_rule(
            q,
            k,
            v,
            g,
            beta,
            initial_state=state,
            output_final_state=True,
            chunk_size=32,
            output_head_major=True,
            program_config=ttnn.ChunkGdnPhasedProgramConfig(),
            **fixed,
        )
        ttnn.copy(behind, state)
        return output

    def fresh() -> tuple[ttnn.Tensor, ttnn.Tensor]:
        return tiles(device, pieces[0].state, ttnn.float32), rows(device, torch.zeros(1, 3, width))

    def of(index: int) -> list[ttnn.Tensor]:
        drawn = pieces[index]
        return [
            tiles(device, mixed[index]),
            tiles(device, drawn.g, ttnn.float32),
            tiles(device, drawn.beta, ttnn.float32),
        ]

    eager, plain = fresh(), []
    for index in range(3):
        plain.append(bits(layer(*of(index), *eager)))
    assert not torch.equal(plain[0], plain[1])

    carried, inputs = fresh(), of(0)
    trace = ttnn.begin_trace_capture(device)
    output = layer(*inputs, *carried)
    ttnn.end_trace_capture(device, trace)
    for index in range(3):
        for target, values, dtype in zip(
            inputs, (mixed[index], pieces[index].g, pieces[index].beta), (ttnn.bfloat16, ttnn.float32, ttnn.float32)
        ):
            ttnn.copy_host_to_device_tensor(ttnn.from_torch(values, dtype=dtype, layout=ttnn.TILE_LAYOUT), target)
        ttnn.execute_trace(device, trace)
        assert torch.equal(bits(output), plain[index]), index
    for found, wanted in zip(carried, eager):
        assert torch.equal(bits(found), bits(wanted))
