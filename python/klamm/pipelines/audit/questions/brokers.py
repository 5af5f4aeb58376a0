"""The intervals in which brokers were active, fenced or absent."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.pipelines.audit.questions.answer import BOOL, INT, LONG, TEXT, TIME, RecordQuestion, Rows

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts, Row


class _Broker(NamedTuple):
    """A broker, after a record."""

    is_fenced: bool = False
    is_shutting_down: bool = False
    is_gone: bool = False
    broker_epoch: int | None = None
    incarnation_id: str | None = None

    @property
    def state(self) -> str:
        if self.is_gone:
            return "unregistered"
        if self.is_fenced:
            return "fenced"
        return "shutting down" if self.is_shutting_down else "active"


class _Beginning(NamedTuple):
    """The beginning of an interval."""

    broker: _Broker
    because: str
    row: Row


def _rows(facts: Facts) -> Rows:
    """The intervals of each broker's state: its fencing history.

    broker; state: `active`, `fenced` (it may lead nothing and be in no ISR), `shutting down` (unfenced, and in its
    controlled shutdown) or `unregistered`; because: `registered`, `fenced`, `unfenced`, `controlled shutdown`,
    `unregistered` or `snapshot`; broker_epoch and incarnation_id of its registration; from_offset, from_epoch (of the
    quorum), from_time; to_offset, to_time (null: open); is_from_snapshot; duration_ms. Each registration begins a
    stretch, even where the broker was fenced before; a record that leaves the state as it is begins none.
    """
    for number, beginnings in _beginnings(facts).items():
        for one, following in itertools.zip_longest(beginnings, beginnings[1:]):
            row, to = one.row, following and following.row
            to_ms = facts.extent.end_time_ms if to is None else to["time_ms"]
            yield (
                number,
                one.broker.state,
                one.because,
                one.broker.broker_epoch,
                one.broker.incarnation_id,
                row["offset"],
                row["epoch"],
                row["time_ms"],
                to and to["offset"],
                to and to["time_ms"],
                row["snapshot"] is not None,
                to_ms - row["time_ms"],
            )


def _beginnings(facts: Facts) -> dict[int, list[_Beginning]]:
    names = (
        "RegisterBrokerRecord",
        "BrokerRegistrationChangeRecord",
        "FenceBrokerRecord",
        "UnfenceBrokerRecord",
        "UnregisterBrokerRecord",
    )
    rows = [(row["offset"], name, row) for name in names for row in facts.rows(name)]
    brokers: dict[int, _Broker] = {}
    found: dict[int, list[_Beginning]] = {}
    for _, name, row in sorted(rows, key=lambda one: one[0]):
        number = row["broker_id"] if "broker_id" in row else row["id"]
        before = brokers.get(number)
        after = brokers[number] = (before or _Broker())._replace(**_said(name, row))
        is_registration = name == "RegisterBrokerRecord"
        if before is None or before.state != after.state or is_registration:
            because = "snapshot" if row["snapshot"] is not None else _because(after.state, is_registration)
            found.setdefault(number, []).append(_Beginning(after, because, row))
    return found


def _because(state: str, is_registration: bool) -> str:
    if is_registration:
        return "registered"
    return {"active": "unfenced", "shutting down": "controlled shutdown"}.get(state, state)


def _said(name: str, row: Row) -> dict[str, Any]:
    """The changes of a broker by a record."""
    match name:
        case "RegisterBrokerRecord":
            return {
                "is_fenced": row["fenced"],
                "is_shutting_down": row["in_controlled_shutdown"],
                "is_gone": False,
                "broker_epoch": row["broker_epoch"],
                "incarnation_id": row["incarnation_id"],
            }
        case "BrokerRegistrationChangeRecord":
            # Fenced: 1 yes, -1 no, 0 unchanged; a controlled shutdown can only begin.
            fenced = {"is_fenced": row["fenced"] == 1} if row["fenced"] else {}
            return fenced | ({"is_shutting_down": True} if row["in_controlled_shutdown"] == 1 else {})
        case "UnregisterBrokerRecord":
            return {"is_gone": True}
        case _:
            return {"is_fenced": name == "FenceBrokerRecord"}


broker_states = RecordQuestion(
    {
        "broker": INT,
        "state": TEXT,
        "because": TEXT,
        "broker_epoch": LONG,
        "incarnation_id": TEXT,
        "from_offset": LONG,
        "from_epoch": INT,
        "from_time": TIME,
        "to_offset": LONG,
        "to_time": TIME,
        "is_from_snapshot": BOOL,
        "duration_ms": LONG,
    },
    _rows,
    is_of_topics=False,
)
