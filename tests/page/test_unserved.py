"""Tests that unserved partitions are not counted as if their numbers were known, with doubles behind the page."""

from tests.page.pictures import RETRIES, shown


def test_the_last_report_of_an_unserved_partition_is_no_number_of_now() -> None:
    with shown() as window:
        row = window.wait("tbody tr", RETRIES).text
        assert "1 unserved" in row
        assert "7 + ?" in row
        assert "0 + ?" in row
        assert "5,0" not in window.text("main")
        window.go(f"#topic/{RETRIES}")
        window.wait("tbody tr", "5,000 1 m 35 s ago")
        assert window.complaints() == []
