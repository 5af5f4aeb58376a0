//! The values that the core and its callers exchange.

use std::fmt;
use std::sync::Arc;

/// The state of a record in a share group, with the numbers of the share coordinator's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum RecordState {
    Available = 0,
    Acquired = 1,
    Acknowledged = 2,
    Archived = 4,
}

impl RecordState {
    /// The state with this number. `None` if Kafka 4.3 does not write it.
    pub fn of(id: i8) -> Option<Self> {
        match id {
            0 => Some(Self::Available),
            1 => Some(Self::Acquired),
            2 => Some(Self::Acknowledged),
            4 => Some(Self::Archived),
            _ => None,
        }
    }

    pub fn id(self) -> i8 {
        self as i8
    }

    /// No record leaves such a state.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Archived)
    }
}

/// Offsets of equal persisted state: `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateBatch {
    pub first: i64,
    pub last: i64,
    pub state: RecordState,
    pub delivery_count: u16,
}

/// The configs of the group that a share partition obeys; read at each use, so that a change acts on records in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `share.partition.max.record.locks`: the most offsets in flight.
    pub record_locks_max: i64,
    /// `share.delivery.count.limit`: after this many deliveries an unaccepted record is archived.
    pub delivery_count: u16,
    /// `share.record.lock.duration.ms`.
    pub lock_duration_ms: i64,
    /// `share.renew.acknowledge.enable`.
    pub is_renew_enabled: bool,
}

/// A member id, which many runs share.
#[derive(Clone)]
pub struct Member(Arc<Box<str>>);

impl Member {
    pub fn new(id: &str) -> Self {
        Self(Arc::new(id.into()))
    }

    pub fn id(&self) -> &str {
        &self.0
    }
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Member {}

impl fmt::Debug for Member {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
