//! OffsetForLeaderEpoch: where an epoch ended, so that a reader can find where its log left the leader's (KIP-320).

use klamm_base::ErrorCode;
use klamm_metadata::MetadataImage;
use klamm_wire::offset_for_leader_epoch::{EpochPartition, EpochResult, OffsetForLeaderEpochRequest, write_response};

use super::{Call, Outcome};
use crate::core::Core;
use crate::lookup::{id_with_partition, topic_named};

pub fn handle(call: Call<'_>, body: &[u8]) -> Outcome {
    let request = match OffsetForLeaderEpochRequest::parse(body, call.version) {
        Ok(request) => request,
        Err(error) => return call.malformed(error),
    };
    let image = call.core.backend.image();
    write_response(&mut call.answer.writer, call.version, &request, |topic, partition| {
        match find(call.core, &image, topic, partition) {
            Ok((leader_epoch, end_offset)) => EpochResult { error: ErrorCode::NONE, leader_epoch, end_offset },
            Err(error) => EpochResult { error, leader_epoch: -1, end_offset: -1 },
        }
    });
    Outcome::Answered
}

fn find(core: &Core, image: &MetadataImage, topic: &str, asked: &EpochPartition) -> Result<(i32, i64), ErrorCode> {
    let id = id_with_partition(topic_named(image, topic)?, asked.index)?;
    core.backend.partition(id, asked.index)?.end_of_epoch(asked.current_leader_epoch, asked.leader_epoch)
}
