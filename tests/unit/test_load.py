"""What makes a file an emitted module, and a device its board."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from runtime.backend import open_device, ttnn
from runtime.errors import DeviceMismatch, ModuleError
from runtime.load import check_device, check_module, load
from runtime.stores import allocate, release
from tests.support.twins import twin_module


def altered(**changes):
    return SimpleNamespace(**{**vars(twin_module("smollm2-135m")), "__name__": "altered", **changes})


def trace(kind, length, **changes):
    """All traces, with those of one variant and length changed."""
    return tuple(
        replace(shape, **changes) if (shape.variant, shape.tokens) == (kind, length) else shape
        for shape in twin_module("smollm2-135m").TRACES
    )


def test_a_module_loads_by_file_and_by_name(tmp_path):
    assert load("generated.smollm2_135m.n150").MODEL == "smollm2-135m"
    with pytest.raises(ModuleError, match="no emitted module at .*absent.py; build it"):
        load(tmp_path / "absent.py")
    with pytest.raises(ModuleError, match="no emitted module named generated.absent.n150"):
        load("generated.absent.n150")
    (tmp_path / "broken.py").write_text("def (:\n")
    with pytest.raises(ModuleError, match="broken.py cannot be imported: SyntaxError"):
        load(tmp_path / "broken.py")
    (tmp_path / "other.py").write_text("MODEL = 'x'\n")
    with pytest.raises(ModuleError, match="is no emitted module: it lacks TARGET, VOCABULARY"):
        load(tmp_path / "other.py")


def test_tables_that_contradict_each_other_are_refused():
    check_module(altered())
    for changes, message in (
        ({"VOCABULARY": 0}, "VOCABULARY is 0, not a positive integer"),
        ({"ALIGNMENT": 48}, "ALIGNMENT 48 is not a multiple of BLOCK_SIZE 32"),
        ({"PREFILL_CHUNK": 96}, "PREFILL_CHUNK 96 is not a multiple of ALIGNMENT 64"),
        ({"PREFILL_CHUNK": 256}, "the longest chunk in TRACES has 128 tokens and PREFILL_CHUNK is 256"),
        ({"TRACES": ()}, "TRACES is empty"),
        ({"STORES": (replace(twin_module("smollm2-135m").STORES[0], placement="heads"),)}, "keys is placed 'heads'"),
        ({"ROTARY_SWITCH": 1024}, "ROTARY_SWITCH 1024 is not inside the context of 1024 tokens"),
        (
            {"ROTARY_SWITCH": 512},
            "rotary_cos has 1024 rows and positions reach 2048: CONTEXT is 1024 and ROTARY_SWITCH 512",
        ),
        ({"TRACES": trace("single", 32, variant="windowed")}, "no inputs are stated for the variant 'windowed'"),
        ({"TRACES": trace("single", 32, rows=2)}, "2 rows; a single pass has 1"),
        ({"TRACES": trace("batched", 32, rows=64)}, "64 rows; .* none more than 32"),
        ({"TRACES": trace("single", 64, fill_pages=3)}, "3 blocks of 32 do not hold 1 x 64 tokens"),
        (
            {"TRACES": trace("chunked", 128, read_pages=31)},
            "may end at 1024 and the table that attention reads covers 992",
        ),
    ):
        with pytest.raises(ModuleError, match=message):
            check_module(altered(**changes))


def test_ragged_waves_without_prices_or_beside_waves_of_equal_rows_are_refused():
    module = twin_module("smollm2-135m", ragged=True)
    check_module(module)
    singles = [shape for shape in module.TRACES if shape.variant == "single"]
    others = [shape for shape in module.TRACES if shape not in singles]
    free = [replace(shape, microseconds=0) for shape in singles]
    equal = [shape for shape in twin_module("smollm2-135m").TRACES if shape.variant == "batched"]
    inputs = {**module.INPUTS, "batched": module.INPUTS["ragged"]}
    for traces, message in (
        ((*free, *others), "has ragged waves and passes without microseconds"),
        ((*singles, *equal, *others), "has ragged waves and waves of equal rows"),
    ):
        with pytest.raises(ModuleError, match=message):
            check_module(SimpleNamespace(**{**vars(module), "__name__": "altered", "TRACES": traces, "INPUTS": inputs}))


def test_windows_that_reach_less_far_than_they_see_are_refused():
    module = twin_module("gemma-3-1b")
    assert (module.GEOMETRY.sliding_window, module.WINDOW_REACH, module.ALIGNMENT) == (40, 64, 64)

    def with_blocks(count):
        def narrow(shape):
            entries = module.INPUTS["chunked"](shape)
            return tuple([replace(one, shape=(1, count)) if one.name == "window_table" else one for one in entries])

        return {"INPUTS": module.INPUTS | {"chunked": narrow}}

    check_module(SimpleNamespace(**vars(module) | with_blocks(6)))
    for changes, message in (
        (
            {"WINDOW_REACH": 0},
            "WINDOW_REACH is 0: a window of 40 tokens needs the next multiple of ALIGNMENT 64 from 39 on",
        ),
        ({"WINDOW_REACH": 96}, "WINDOW_REACH is 96: a window of 40 tokens"),
        (with_blocks(5), "layers with a window read 5 blocks of 32 tokens and need 192 tokens"),
    ):
        with pytest.raises(ModuleError, match=message):
            check_module(SimpleNamespace(**vars(module) | changes))
    with pytest.raises(ModuleError, match="WINDOW_REACH is 64: a window of 0 tokens"):
        check_module(altered(WINDOW_REACH=64))


def test_a_device_of_another_board_is_refused_with_both():
    module = twin_module("smollm2-135m")
    check_device(module, open_device(module.BOARD))
    for board, message in (
        (replace(module.BOARD, architecture="blackhole"), "built for n150 .wormhole_b0.; the device is blackhole"),
        (replace(module.BOARD, grid=(8, 7)), "built for 8 x 8 worker cores; the device has 8 x 7"),
        (replace(module.BOARD, dram_banks=6), "built for 12 DRAM banks; the device has 6"),
    ):
        with pytest.raises(DeviceMismatch, match=message):
            check_device(module, open_device(board))


def test_stores_are_zero_when_allocated_and_a_fault_leaves_nothing():
    module = twin_module("qwen3-8b")
    device = open_device(module.BOARD)
    stores = allocate(module, device)
    assert [len(tensors) for tensors in vars(stores).values()] == [module.LAYERS] * len(module.STORES)
    for store in module.STORES:
        for tensor in getattr(stores, store.name):
            assert (tuple(tensor.shape), tensor.dtype, tensor.layout) == (store.shape, store.dtype, store.layout)
            assert not ttnn.to_torch(tensor).any()
    release(stores)
    assert len(allocate(module, device, layers=1).keys) == 1
    with pytest.raises(ModuleError, match="3 layers of the store keys"):
        allocate(module, device, layers=3)

    def fail(name, seen=[]):
        seen.append(name)
        if len(seen) == 3:
            raise RuntimeError("injected")

    device.before_operation = fail
    with pytest.raises(RuntimeError) as held:
        allocate(module, device)
    device.before_operation = None
    assert str(held.value) == "injected" and device.live_tensors() == []
