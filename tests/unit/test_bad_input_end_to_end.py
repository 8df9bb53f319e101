"""Promises about odd arguments of a call on a twin: one clear refusal before any device work, or the same result; and
nothing is left on the device. The README's snippets run as they are printed.
"""

from __future__ import annotations

import gc
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from runtime import load as loading
from runtime.errors import CollectError, InvalidPage, InvalidSampling, NotCompiled, OutputMismatch, RequestError
from runtime.prefill import Prefill
from runtime.reference.parameters import RandomParameters
from runtime.request import Sampling
from tests.support.twins import Rig, narrow_module, twin_module

README = Path(__file__).resolve().parents[2] / "README.md"
LENGTHS = [33, 70, 5]


@pytest.fixture(scope="module")
def rig():
    return Rig()


@pytest.fixture
def prefill(rig):
    live = rig.live()
    yield Prefill(rig.module, rig.device, rig.weights, rig.stores)
    if rig.live() != live:
        gc.collect()  # what only a cycle holds is no leak
    assert rig.live() == live


@pytest.mark.parametrize("name", ["tokens", "page_table", "prompt_lens"])
@pytest.mark.parametrize("dtype", [">i4", ">i8", "<i4"])
def test_integers_of_any_byte_order_are_the_same_integers(rig, prefill, name, dtype):
    arguments = vars(rig.call(LENGTHS))
    expected = prefill.prefill_forward(**arguments)
    found = prefill.prefill_forward(**arguments | {name: np.asarray(arguments[name]).astype(dtype)})
    assert torch.equal(found, expected)


def test_a_bad_block_is_named_in_any_byte_order(rig, prefill):
    call = rig.call(LENGTHS)
    call.page_table = call.page_table.astype(">i8")
    call.page_table[1, 2] = 10**6
    with pytest.raises(InvalidPage, match="row 1: page-table entry 2 is block 1000000"):
        prefill.prepare(**vars(call))


@pytest.mark.parametrize("name", ["tokens", "page_table", "prompt_lens"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.bool])
def test_tensors_of_anything_but_integers_are_refused_by_dtype(rig, prefill, name, dtype):
    arguments = vars(rig.call(LENGTHS))
    arguments[name] = torch.tensor(arguments[name]).to(dtype)
    with pytest.raises(RequestError, match=f"{name} holds"):
        prefill.prepare(**arguments)


def test_a_sparse_tensor_is_refused(rig, prefill):
    call = rig.call(LENGTHS)
    call.tokens = torch.tensor(call.tokens).to_sparse()
    with pytest.raises(RequestError, match="tokens holds torch.int64 as torch.sparse_coo"):
        prefill.prepare(**vars(call))


@pytest.mark.parametrize("kind", [set, frozenset])
def test_lengths_without_an_order_are_refused(rig, prefill, kind):
    call = rig.call(LENGTHS)
    call.prompt_lens = kind(LENGTHS)
    with pytest.raises(RequestError, match=f"prompt_lens is {kind.__name__}"):
        prefill.prepare(**vars(call))


@pytest.mark.parametrize("final", [None, 1, 0, "yes", [True, False], np.array(1), torch.tensor(1)])
def test_final_is_one_bool_or_one_for_each_row(rig, prefill, final):
    with pytest.raises(RequestError, match="give one bool, or one bool for each of 3 rows"):
        prefill.prepare(**vars(rig.call(LENGTHS)), final=final)


@pytest.mark.parametrize("final", [np.bool_(True), torch.tensor(True), np.array([True] * 3)])
def test_final_may_be_a_bool_of_numpy_or_torch(rig, prefill, final):
    assert all(plan.final for plan in prefill.prepare(**vars(rig.call(LENGTHS)), final=final))


@pytest.mark.parametrize(
    "field, value",
    [
        ("temperature", 10**400),
        ("temperature", 1e300),
        ("temperature", 1e-40),
        ("temperature", np.float32("nan")),
        ("top_p", 10**400),
        ("presence", 10**400),
        ("repetition", 10**400),
        ("top_k", np.int64(33)),
    ],
)
def test_sampling_that_the_device_cannot_hold_is_refused(rig, prefill, field, value):
    with pytest.raises(InvalidSampling, match=f"row 0: {field} is"):
        prefill.prepare(**vars(rig.call(LENGTHS)), sampling=Sampling(**{field: value}))


def test_sampling_takes_the_numbers_of_numpy(rig, prefill):
    call = vars(rig.call(LENGTHS))
    plain = Sampling(temperature=0.5, top_k=5, seed=7)
    counted = Sampling(temperature=np.float32(0.5), top_k=np.int64(5), seed=np.uint32(7))
    expected = prefill.prefill_forward(**call, sampling=plain)
    assert torch.equal(prefill.prefill_forward(**call, sampling=counted), expected)


@pytest.mark.parametrize("sampling", [np.array([1, 2, 3]), 5, b"abc"])
def test_what_is_no_sampling_is_refused(rig, prefill, sampling):
    with pytest.raises((RequestError, InvalidSampling), match="give"):
        prefill.prepare(**vars(rig.call(LENGTHS)), sampling=sampling)


@pytest.mark.parametrize("slot_remap", [{0: True}, {0: 1.5}, {"a": 1}, {0: -1}])
def test_slots_of_a_remap_are_integers(rig, prefill, slot_remap):
    with pytest.raises(RequestError, match="slots are integers"):
        prefill.prepare(**vars(rig.call(LENGTHS)), slot_remap=slot_remap)


@pytest.mark.parametrize(
    "made",
    [
        lambda rows, width: torch.empty(rows, width, requires_grad=True),
        lambda rows, width: torch.empty(rows, width, device="meta"),
        lambda rows, width: torch.empty(1, width).expand(rows, width),
    ],
    ids=["gradient", "meta", "expanded"],
)
def test_a_buffer_that_cannot_hold_every_element_is_refused_before_any_pass(rig, prefill, made):
    with pytest.raises(OutputMismatch, match="give one made by torch.empty"):
        prefill.prefill_forward(**vars(rig.call(LENGTHS)), out=made(3, rig.module.VOCABULARY))
    assert prefill.stats().passes == 0


def test_results_are_collected_once(rig, prefill):
    results = list(prefill.run(prefill.prepare(**vars(rig.call(LENGTHS)))))
    prefill.collect(results)
    with pytest.raises(CollectError, match="were released before; collect each once"):
        prefill.collect(results)
    assert prefill.orphans == 0


def test_trace_bytes_are_refused_before_warm_up(prefill):
    with pytest.raises(NotCompiled, match=r"call warm_up\(\) first"):
        prefill.trace_bytes()


def test_the_snippets_of_the_readme_run_in_turn_as_they_are_printed(monkeypatch, tmp_path, capsys):
    """On a narrow twin in place of the module that they name."""
    snippets = re.findall(r"```python\n(from runtime.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) == 2
    module = narrow_module()
    parameters = RandomParameters(twin_module("smollm2-135m").GEOMETRY, 0)
    save_file({name: parameters[name].contiguous() for name in parameters}, tmp_path / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loading, "load", lambda name: module)
    names = {"tokens": torch.arange(140).reshape(2, 70), "page_table": torch.arange(6).reshape(2, 3)}
    names["prompt_lens"] = [5, 70]
    for snippet in snippets:
        exec(snippet, names)
    assert names["logits"].shape == (2, module.VOCABULARY) and names["chosen"].shape == (2,)
    assert capsys.readouterr().out.count("top_k") == len(module.TRACES)
