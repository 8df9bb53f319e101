"""Every promise of the contract that this project took on has a test that names it."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.contract_rows import ROWS, TESTS, WITHOUT_A_TEST, cited, ids_in_name

CITED = cited(sorted(TESTS.rglob("test_*.py")))


def test_every_row_is_cited_by_a_test_or_listed_with_its_reason(report: Callable[[str], None]) -> None:
    wanted = [row for row in ROWS if row not in WITHOUT_A_TEST]
    missing = [row for row in wanted if row not in CITED]
    report(
        f"contract: {len(wanted) - len(missing)} of {len(ROWS)} rows have a test ({sum(map(len, CITED.values()))} citations), "
        f"{len(WITHOUT_A_TEST)} a reason why not"
    )
    assert not missing, f"no test cites {', '.join(missing)}"


def test_rows_that_have_a_test_need_no_reason_and_reasons_are_of_known_rows() -> None:
    assert set(WITHOUT_A_TEST) <= set(ROWS)
    assert not [row for row in WITHOUT_A_TEST if row in CITED]


def test_names_are_read_as_ids() -> None:
    assert list(ids_in_name("test_s000_12_and_14_rows_keep_order")) == ["S000-12", "S000-14"]
    assert list(ids_in_name("test_b02_waves_split")) == ["B-02"]
    assert list(ids_in_name("test_fault_b02_nothing_is_allocated")) == ["B02"]
    assert list(ids_in_name("test_b57_the_smallest_length")) == ["B57"]
    assert list(ids_in_name("test_block_sizes_of_32_rows")) == []
