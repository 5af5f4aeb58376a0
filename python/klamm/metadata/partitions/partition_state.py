"""The state of one partition after each of its records."""

from __future__ import annotations

from typing import NamedTuple

from klamm._engine.metadata import PartitionInfo
from klamm.protocol.generated.metadata_records import PartitionChangeRecord, PartitionRecord

_NO_CHANGE = -2
Ids = tuple[int, ...]


class PartitionState(NamedTuple):
    """A partition; a leader of -1 is none."""

    leader: int
    replicas: Ids
    isr: Ids
    elr: Ids = ()
    last_known_elr: Ids = ()
    adding_replicas: Ids = ()
    removing_replicas: Ids = ()
    is_recovering: bool = False

    @classmethod
    def of_image(cls, info: PartitionInfo) -> PartitionState:
        """As an image has it."""
        return cls(
            info.leader,
            tuple(info.replicas),
            tuple(info.isr),
            tuple(info.elr),
            tuple(info.last_known_elr),
            tuple(info.adding_replicas),
            tuple(info.removing_replicas),
            bool(info.leader_recovery_state),
        )

    @classmethod
    def created(cls, record: PartitionRecord) -> PartitionState:
        """As it begins."""
        return cls(
            record.leader,
            tuple(record.replicas),
            tuple(record.isr),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            tuple(record.adding_replicas),
            tuple(record.removing_replicas),
            bool(record.leader_recovery_state),
        )

    def after(self, record: PartitionChangeRecord) -> PartitionState:
        """The state after a change; fields that the record does not set stay unchanged (`PartitionChangeRecord`)."""

        def changed(ids: object, old: Ids) -> Ids:
            return old if ids is None else tuple(ids)  # type: ignore[arg-type]

        return PartitionState(
            self.leader if record.leader == _NO_CHANGE else record.leader,
            changed(record.replicas, self.replicas),
            changed(record.isr, self.isr),
            changed(record.eligible_leader_replicas, self.elr),
            changed(record.last_known_elr, self.last_known_elr),
            changed(record.adding_replicas, self.adding_replicas),
            changed(record.removing_replicas, self.removing_replicas),
            self.is_recovering if record.leader_recovery_state < 0 else bool(record.leader_recovery_state),
        )

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)
