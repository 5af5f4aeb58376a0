//! Calls to the share coordinator: a share partition's state is read when it is loaded, and written when it changes.

use std::sync::Arc;

use klamm_base::ErrorCode;
use klamm_base::panics::contained;
use klamm_replica::OffsetQuery;
use klamm_share::{RecordState, SharePartition, StateBatch, Write, WriteId};
use klamm_wire::api::{READ_SHARE_GROUP_STATE, WRITE_SHARE_GROUP_STATE};
use klamm_wire::share_state::{PersistedBatch, ReadState, WrittenState};

use super::groups::{LATEST, ShareGroups};
use super::partition::{LivePartition, Phase};
use super::settings::OffsetReset;
use crate::core::Core;
use crate::events::{LogLevel, ShareStateCall};

/// The timestamp of ListOffsets that stands for the log start offset.
const EARLIEST: i64 = -2;
/// The start offset of a share partition that has none yet.
const NO_OFFSET: i64 = -1;

/// A call without an answer yet.
pub enum Asked {
    Read(Arc<LivePartition>),
    Write(Arc<LivePartition>, WriteId),
}

impl ShareGroups {
    /// Begins to load a share partition.
    pub(super) fn ask_for_state(&self, core: &Core, live: &Arc<LivePartition>) {
        let body = live.key.name().read_request(live.leader_epoch);
        self.ask(core, live, READ_SHARE_GROUP_STATE, body, Asked::Read(live.clone()));
    }

    pub(super) fn ask_to_write(&self, core: &Core, live: &Arc<LivePartition>, write: Write) {
        let batches = write.batches.iter().map(|batch| PersistedBatch {
            first: batch.first,
            last: batch.last,
            state: batch.state.id(),
            delivery_count: i16::try_from(batch.delivery_count).unwrap_or(i16::MAX),
        });
        let body = live.key.name().write_request(&WrittenState {
            state_epoch: write.state_epoch,
            leader_epoch: write.leader_epoch,
            start_offset: write.start_offset,
            delivery_complete_count: write.delivery_complete_count,
            batches: &batches.collect::<Vec<_>>(),
        });
        self.ask(core, live, WRITE_SHARE_GROUP_STATE, body, Asked::Write(live.clone(), write.id));
    }

    fn ask(&self, core: &Core, live: &LivePartition, api_key: i16, body: Vec<u8>, asked: Asked) {
        let request_id = self.next_id();
        self.asked.lock().insert(request_id, asked);
        core.events.push_share_state(Box::new(ShareStateCall {
            request_id,
            api_key,
            group_id: live.key.group.to_string(),
            topic: live.key.topic,
            index: live.key.index,
            body,
        }));
    }

    /// The persister has the result of a call: the response's body, or its final error. Further results are ignored.
    pub fn on_answered(&self, core: &Core, request_id: u64, code: ErrorCode, body: &[u8]) {
        let Some(asked) = self.asked.lock().remove(&request_id) else { return };
        let live = match &asked {
            Asked::Read(live) | Asked::Write(live, _) => live.clone(),
        };
        let taken = contained(|| match asked {
            Asked::Read(live) => self.on_read(core, &live, code, body),
            Asked::Write(live, id) => self.on_write(core, &live, id, code, body),
        });
        if taken.is_none() {
            // Its requests would wait forever.
            self.drop_partition(&live, ErrorCode::UNKNOWN_SERVER_ERROR);
            report(core, &live, "the answer of the share coordinator could not be processed");
        }
    }

    fn on_read(&self, core: &Core, live: &Arc<LivePartition>, code: ErrorCode, body: &[u8]) {
        let loaded = load(self, core, live, code, body);
        self.metrics.loads.add(1);
        self.metrics.load_ms.add(u64::try_from(live.created.elapsed().as_millis()).unwrap_or(u64::MAX));
        match loaded {
            Ok(partition) => {
                let mut state = live.state.lock();
                if matches!(state.phase, Phase::Loading) {
                    state.phase = Phase::Active(Box::new(partition));
                }
                let is_unused = state.is_unused;
                drop(state);
                live.wake();
                if is_unused {
                    self.drop_when_written(live);
                }
            }
            Err(code) => self.drop_partition(live, code),
        }
    }

    fn on_write(&self, core: &Core, live: &Arc<LivePartition>, id: WriteId, code: ErrorCode, body: &[u8]) {
        let code = if code.is_error() { code } else { written(core, live, body) };
        let code = for_client(code);
        let limits = self.settings(&core.backend.image(), &live.key.group).limits;
        let mut state = live.state.lock();
        let waiting = state.on_written.remove(&id).unwrap_or_default();
        let is_unused = state.is_unused;
        let mut is_changed = false;
        if let Phase::Active(partition) = &mut state.phase {
            is_changed = partition.on_written(id, !code.is_error(), core.backend.now_ms(), &limits);
        }
        let is_fenced = matches!(
            code,
            ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        );
        if !is_fenced {
            self.after_change(core, live, &mut state);
        }
        drop(state);
        waiting.into_iter().for_each(|done| done(code));
        if is_fenced {
            self.drop_partition(live, code);
        } else if is_changed {
            live.wake();
        }
        if is_unused {
            self.drop_when_written(live);
        }
    }
}

/// The error of a persister's result that a client receives.
fn for_client(code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS => {
            ErrorCode::COORDINATOR_NOT_AVAILABLE
        }
        ErrorCode::FENCED_LEADER_EPOCH | ErrorCode::FENCED_STATE_EPOCH => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::NONE | ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => code,
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}

fn written(core: &Core, live: &LivePartition, body: &[u8]) -> ErrorCode {
    match live.key.name().write_response(body) {
        Ok(Some(code)) => code,
        Ok(None) => report(core, live, "the share coordinator answered for another partition"),
        Err(error) => report(core, live, error),
    }
}

pub(super) fn report(core: &Core, live: &LivePartition, what: impl std::fmt::Display) -> ErrorCode {
    let (group, topic, index) = (&live.key.group, live.key.topic, live.key.index);
    let message = format!("share partition {index} of topic id {topic} in group {group}: {what}");
    core.events.log(LogLevel::Error, message);
    ErrorCode::UNKNOWN_SERVER_ERROR
}

/// The share partition as the coordinator has it.
fn load(
    groups: &ShareGroups,
    core: &Core,
    live: &LivePartition,
    code: ErrorCode,
    body: &[u8],
) -> Result<SharePartition, ErrorCode> {
    if code.is_error() {
        return Err(for_client(code));
    }
    let state = match live.key.name().read_response(body) {
        Ok(Some(state)) => state,
        Ok(None) => return Err(report(core, live, "the share coordinator answered for another partition")),
        Err(error) => return Err(report(core, live, error)),
    };
    if state.error.is_error() {
        return Err(for_client(state.error));
    }
    let start_offset = match state.start_offset {
        NO_OFFSET => start_offset(groups, core, live)?,
        // AlterShareGroupOffsets takes any number: one that no log has is before its beginning.
        offset => offset.max(0),
    };
    let batches = batches(&state).ok_or_else(|| report(core, live, "a batch has an unknown state"))?;
    let loaded = SharePartition::load(live.leader_epoch, state.state_epoch, start_offset, &batches);
    loaded.map_err(|error| report(core, live, error))
}

fn batches(state: &ReadState) -> Option<Vec<StateBatch>> {
    let batch = |batch: &PersistedBatch| {
        let delivery_count = u16::try_from(batch.delivery_count).unwrap_or(0);
        let state = RecordState::of(batch.state)?;
        Some(StateBatch { first: batch.first, last: batch.last, state, delivery_count })
    };
    state.batches.iter().map(batch).collect()
}

/// Where the group begins to read (`share.auto.offset.reset`).
fn start_offset(groups: &ShareGroups, core: &Core, live: &LivePartition) -> Result<i64, ErrorCode> {
    let settings = groups.settings(&core.backend.image(), &live.key.group);
    let timestamp = match settings.offset_reset {
        OffsetReset::Latest => LATEST,
        OffsetReset::Earliest => EARLIEST,
        OffsetReset::ByDuration(ms) => core.now_ms().saturating_sub(ms).max(0),
    };
    let query = OffsetQuery {
        timestamp,
        current_leader_epoch: live.leader_epoch,
        read_committed: Some(false),
        only_from_leader: true,
    };
    let found = core.backend.partition(live.key.topic, live.key.index)?.find_offset(&query)?;
    if found.offset == NO_OFFSET { Err(ErrorCode::OFFSET_NOT_AVAILABLE) } else { Ok(found.offset) }
}
