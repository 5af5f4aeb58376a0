"""The records that a read_committed reader gets (KIP-98)."""

from klamm.embedded.rows import ABORT, Row, read_committed

COMMIT = b"\0\x01"


def data(offset: int, producer_id: int = -1) -> Row:
    return offset, b"k", b"v", producer_id, False


def end(offset: int, producer_id: int, kind: bytes) -> Row:
    return offset, kind, b"", producer_id, True


def offsets(*rows: Row) -> list[int]:
    return [offset for offset, *_, is_control in read_committed(rows) if not is_control]


def test_non_transactional_records_are_returned() -> None:
    assert offsets(data(0), data(1)) == [0, 1]
    assert offsets() == []


def test_an_aborted_transaction_is_skipped_also_between_others() -> None:
    rows = [data(0, 7), data(1, 8), data(2), data(3, 7), end(4, 7, ABORT), end(5, 8, COMMIT), data(6, 7)]
    assert offsets(*rows, end(7, 7, COMMIT)) == [1, 2, 6]


def test_nothing_is_returned_from_the_first_open_transaction_on() -> None:
    assert offsets(data(0), data(1, 8), data(2, 7), data(3), end(4, 8, COMMIT), data(5)) == [0, 1]
    assert offsets(data(0, 7), end(1, 7, ABORT), data(2), data(3, 7)) == [2]


def test_a_marker_whose_records_were_compacted_ends_nothing() -> None:
    assert offsets(end(3, 7, ABORT), data(4, 7), end(5, 7, COMMIT), end(6, 8, COMMIT), data(7)) == [4, 7]
