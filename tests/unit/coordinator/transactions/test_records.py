"""The bytes of `__transaction_state`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.coordinator.runtime.log import RecordError
from klamm.coordinator.transactions.records import (
    StoredTransaction,
    decode_key,
    decode_value,
    transaction_key,
    transaction_value,
)
from klamm.coordinator.transactions.states import State

INT64 = st.integers(-1, 2**63 - 1)
TOPICS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
TRANSACTIONS = st.builds(
    StoredTransaction,
    INT64,
    st.integers(-1, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.sampled_from([state for state in State if state not in (State.EMPTY, State.DEAD, State.PREPARE_EPOCH_FENCE)]),
    st.frozensets(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), max_size=8),
    INT64,
    INT64,
    INT64,
    INT64,
    st.sampled_from([0, 2]),
)


@given(TRANSACTIONS)
def test_a_value_of_version_1_has_everything(stored: StoredTransaction) -> None:
    assert decode_value(transaction_value(stored, version=1)) == stored


@given(TRANSACTIONS)
def test_a_value_of_version_0_has_no_tagged_fields(stored: StoredTransaction) -> None:
    found = decode_value(transaction_value(stored, version=0))
    assert found is not None
    assert found.partitions == stored.partitions
    assert (found.producer_id, found.epoch, found.state) == (stored.producer_id, stored.epoch, stored.state)
    assert (found.previous_producer_id, found.next_producer_id, found.client_version) == (-1, -1, 0)


@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_keys(transactional_id: str) -> None:
    assert decode_key(transaction_key(transactional_id)) == transactional_id


def test_the_bytes_of_both_versions() -> None:
    """Kafka's TransactionLogValue.json: version 0 is not flexible."""
    stored = StoredTransaction(7, 3, 1000, State.PREPARE_COMMIT, frozenset({("t", 1), ("t", 0)}), 5, 4, 6, -1, 2)
    fixed = "0000000000000007" + "0003" + "000003e8" + "02"
    times = "0000000000000005" + "0000000000000004"
    topics = "00000001" + "0001" + "74" + "00000002" + "00000000" + "00000001"
    assert transaction_value(stored, version=0).hex() == "0000" + fixed + topics + times
    topics = "02" + "02" + "74" + "03" + "00000000" + "00000001" + "00"
    tags = "02" + "00" + "08" + "0000000000000006" + "02" + "02" + "0002"
    assert transaction_value(stored, version=1).hex() == "0001" + fixed + topics + times + tags


@pytest.mark.parametrize("version", [0, 1])
def test_without_partitions(version: int) -> None:
    """Null in EMPTY, an empty array later."""
    for state, raw in ((State.EMPTY, ["ffffffff", "00"]), (State.COMPLETE_ABORT, ["00000000", "01"])):
        stored = StoredTransaction(7, 3, 1000, state, frozenset(), 5, 4)
        value = transaction_value(stored, version=version)
        assert value[17:].hex().startswith(raw[version])
        assert decode_value(value) == stored


def test_unknown_versions_are_skipped() -> None:
    assert decode_key(b"\0\1\0\1t") is None
    assert decode_value(b"\0\2rest") is None


@given(TRANSACTIONS, st.data())
def test_damaged_values_are_refused(stored: StoredTransaction, data: st.DataObject) -> None:
    value = transaction_value(stored, version=1)
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(RecordError):
        decode_value(value[:cut])
    with pytest.raises(RecordError):
        decode_key(transaction_key("t")[:3])
