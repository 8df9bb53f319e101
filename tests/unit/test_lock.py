"""codegen.lock: read back as written, stable bytes, and no guess at a broken one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from generator import lock
from generator.errors import ManifestError

ENTRY = lock.Entry("m", "n150", "a", "b", "c", "black 1", "d", "2026-01-31")
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
        '{"version": 1, "sources": {}, "modules": {}}',
        '{"version": 2, "sources": {}, "modules": {"m/n150.py": {}}}',
        '{"version": 2, "sources": {}, "modules": [], "more": 1}',
        '{"version": 2, "sources": {}, "modules": {}, "more": 1}',
        '{"version": 2, "sources": [], "modules": {}}',
        '{"version": 2, "sources": {"a": 1}, "modules": {}}',
        ESCAPING.text(),
    ],
)
@pytest.mark.parametrize(("name", "read"), [(lock.NAME, lock.read), (lock.PENDING, lock.read_pending)])
def test_a_broken_lock_is_refused_by_name(tmp_path: Path, name: str, read, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ManifestError, match=f"{name}: is no lock file of version 2 .*--force"):
        read(tmp_path)


def test_a_lock_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / lock.NAME).mkdir()
    with pytest.raises(ManifestError, match="is no lock file"):
        lock.read(tmp_path)


@pytest.mark.parametrize("changed", ["manifest", "board", "output"])
def test_a_module_has_a_new_day_where_what_it_is_made_from_changed(changed: str) -> None:
    now = replace(ENTRY, changed="", **{changed: "another"})
    assert now.since(ENTRY, "2026-02-01").changed == "2026-02-01"


def test_a_module_keeps_its_day_where_only_code_around_its_text_changed() -> None:
    now = replace(ENTRY, changed="", sources="another", tools="black 2")
    assert now.since(ENTRY, "2026-02-01") == replace(now, changed=ENTRY.changed)
    assert now.since(None, "2026-02-01").changed == "2026-02-01"


def test_the_day_is_that_of_the_clock_or_the_one_that_the_environment_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock.time, "time", lambda: 86399.9)
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert lock.today() == "1970-01-01"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert lock.today() == "1970-01-02"


@pytest.mark.parametrize("stated", ["", "tomorrow", "1.5", "1" * 40])
def test_a_stated_day_that_is_none_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, stated: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", stated)
    with pytest.raises(ManifestError, match="environment: SOURCE_DATE_EPOCH = .*: must be whole seconds since 1970"):
        lock.today()
