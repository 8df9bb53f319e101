"""codegen.lock: read back as written, stable bytes, and no guess at a broken one."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator import lock
from generator.errors import ManifestError

ENTRY = lock.Entry("m", "n150", "a", "b", "c", "black 1", "d")
ESCAPING = lock.Lock({}, {"../n150.py": ENTRY})


def test_a_lock_reads_back_as_it_was_written(tmp_path: Path) -> None:
    written = lock.Lock({"templates/x.jinja": "e"}, {"m/n150.py": ENTRY})
    (tmp_path / lock.NAME).write_text(written.text(), encoding="utf-8")
    assert lock.read(tmp_path) == written
    assert lock.read_pending(tmp_path) == lock.Lock()


def test_the_order_of_entries_does_not_change_the_bytes() -> None:
    one = lock.Lock({"a": "1", "b": "2"}, {"m/n150.py": ENTRY, "k/p150.py": ENTRY})
    other = lock.Lock({"b": "2", "a": "1"}, {"k/p150.py": ENTRY, "m/n150.py": ENTRY})
    assert one.text() == other.text()
    assert one.text().endswith("}\n")


def test_no_lock_is_an_empty_one(tmp_path: Path) -> None:
    assert lock.read(tmp_path / "nowhere") == lock.Lock()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no json",
        "[]",
        "{}",
        '{"version": 2, "sources": {}, "modules": {}}',
        '{"version": 1, "sources": {}, "modules": {"m/n150.py": {}}}',
        '{"version": 1, "sources": {}, "modules": [], "more": 1}',
        '{"version": 1, "sources": {}, "modules": {}, "more": 1}',
        '{"version": 1, "sources": [], "modules": {}}',
        '{"version": 1, "sources": {"a": 1}, "modules": {}}',
        ESCAPING.text(),
    ],
)
@pytest.mark.parametrize(("name", "read"), [(lock.NAME, lock.read), (lock.PENDING, lock.read_pending)])
def test_a_broken_lock_is_refused_by_name(tmp_path: Path, name: str, read, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ManifestError, match=f"{name}: is no lock file of version 1 .*--force"):
        read(tmp_path)


def test_a_lock_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / lock.NAME).mkdir()
    with pytest.raises(ManifestError, match="is no lock file"):
        lock.read(tmp_path)
