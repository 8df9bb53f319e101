"""The mock device itself: a stand-in compiler without child processes, boards that open with their real grids, and what
cannot."""

from __future__ import annotations

import stat
import struct
import subprocess
from pathlib import Path

import pytest

from runtime.legality.boards import BOARDS, cluster_descriptor
from runtime.legality.command import check
from runtime.legality.environment import VERSION, installed_version
from runtime.legality.errors import CannotCheck
from runtime.legality.process import MockDevice
from runtime.legality.stand_in import TEXT_ADDRESS, compiler_script, executable_image
from tests.device.emitted import job_of, smallest_module


@pytest.mark.parametrize(
    ("board", "architecture", "grid"), [("n150", "wormhole_b0", [8, 8]), ("p150", "blackhole", [11, 10])]
)
def test_a_board_opens_with_its_grid(mock_device, board: str, architecture: str, grid: list[int]) -> None:
    opened = mock_device(board).opened

    assert (opened["architecture"], opened["grid"]) == (architecture, grid)


def test_the_installed_library_is_the_recorded_one() -> None:
    assert installed_version() == VERSION


def test_the_stand_in_links_the_image_byte_for_byte(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(compiler_script())
    compiler.chmod(stat.S_IRWXU)
    arguments = {"cwd": tmp_path, "check": True, "env": {"PATH": ""}}  # no command but the shell's own can be found
    subprocess.run([compiler, "-c", "-o", "a.o", "a.cc", "-MF", "a.d"], **arguments)
    subprocess.run([compiler, "-O2", "a.o", "-o", "a.elf"], **arguments)

    assert (tmp_path / "a.elf").read_bytes() == executable_image()
    assert (tmp_path / "a.o").read_bytes() == b""
    assert (tmp_path / "a.d").read_text() == "a.o:\n"
    assert struct.unpack_from("<I", executable_image(), 24) == (TEXT_ADDRESS,)


def test_a_device_that_hangs_while_it_opens_is_ended(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.legality.process.ANSWER_SECONDS", 0.1)

    with pytest.raises(CannotCheck, match="ttnn does not open the mock board n150: .* was ended after 0.1 s"):
        MockDevice("n150", library)


def test_a_mock_device_leaves_no_folder_behind(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with MockDevice("n150", library) as device:
        assert len(list(tmp_path.iterdir())) == 1
    assert not device.alive and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["arch: {", "[1, 2]", "arch: {0: wormhole_b0}", "arch: {0: abacus}\nchips_with_mmio: [{0: 0}]\n"]
)
def test_a_wrong_descriptor_is_refused_with_what_the_library_says(library: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)

    with pytest.raises(
        CannotCheck, match=r"(?s)ttnn does not open the cluster descriptor .*cluster\.yaml: the process .*own"
    ):
        list(check([job_of(smallest_module("n150"))], path))


def test_a_board_that_is_not_the_modules_is_refused_with_every_difference(library: Path, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(cluster_descriptor(BOARDS["p150"]))

    with pytest.raises(CannotCheck) as caught:
        list(check([job_of(smallest_module("n150"))], path))
    message = str(caught.value)
    assert (
        "architecture wormhole_b0, the device has blackhole; grid [8, 8], the device has [11, 10]; dram_banks 12"
        in message
    )
    assert "name a descriptor of n150" in message


def test_the_users_own_descriptor_of_the_modules_board_is_as_good_as_the_projects(
    library: Path, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(cluster_descriptor(BOARDS["n150"]))

    assert [one["passed"] for one in check([job_of(smallest_module("n150"))], path)] == [True]
