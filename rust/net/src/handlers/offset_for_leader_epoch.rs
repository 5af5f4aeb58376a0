//! OffsetForLeaderEpoch: the end offset of an epoch, by which a consumer detects log truncation (KIP-320).

use klamm_base::ErrorCode;
use klamm_wire::offset_for_leader_epoch::{EpochPartition, EpochResult, OffsetForLeaderEpochRequest, write_response};

use super::{Call, Outcome};
use crate::core::Core;
use crate::pipeline::{Topics, id_with_partition};

pub fn handle(call: Call<'_>, body: &[u8]) -> Outcome {
    let request = match OffsetForLeaderEpochRequest::parse(body, call.context.version) {
        Ok(request) => request,
        Err(error) => return call.malformed(error),
    };
    let image = call.core.backend.image();
    let (core, topics) = (call.core, call.topics(&image));
    write_response(&mut call.answer.writer, call.context.version, &request, |topic, partition| {
        match find(core, &topics, topic, partition) {
            Ok((leader_epoch, end_offset)) => EpochResult { error: ErrorCode::NONE, leader_epoch, end_offset },
            Err(error) => EpochResult { error, leader_epoch: -1, end_offset: -1 },
        }
    });
    Outcome::Answered
}

fn find(core: &Core, topics: &Topics<'_>, topic: &str, asked: &EpochPartition) -> Result<(i32, i64), ErrorCode> {
    let id = id_with_partition(topics.named(topic)?, asked.index)?;
    core.backend.partition(id, asked.index)?.end_of_epoch(asked.current_leader_epoch, asked.leader_epoch)
}
