//! Encodes a follower's Fetch exactly as Python's codec does.

use klamm_base::primitives::Writer;

use super::FetchPlan;
use crate::METADATA_TOPIC_ID;

/// Stands for the high watermark in a fetch before version 18: the replica counts as knowing it (KIP-1166).
const HIGH_WATERMARK_UNSUPPORTED: i64 = i64::MAX;

/// The fetch offset, and the known high watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub end_offset: i64,
    pub last_epoch: i32,
    pub high_watermark: i64,
}

/// The body of a request.
pub fn fetch_body(plan: &FetchPlan, at: Position) -> Vec<u8> {
    let mut out = Writer::with_capacity(256);
    out.i32(plan.max_wait_ms);
    out.i32(0);
    out.i32(plan.max_bytes);
    out.i8(0);
    // Session 0 at epoch -1: none (KIP-227).
    out.i32(0);
    out.i32(-1);
    out.compact_array_len(1);
    out.uuid(METADATA_TOPIC_ID);
    out.compact_array_len(1);
    write_partition(&mut out, plan, at);
    out.no_tagged_fields();
    out.compact_array_len(0);
    out.compact_string("");
    let is_replica = plan.replica_id != -1;
    out.unsigned_varint(u32::from(plan.cluster_id.is_some()) + u32::from(is_replica));
    if let Some(cluster_id) = &plan.cluster_id {
        out.tagged_field(0, |field| field.compact_string(cluster_id));
    }
    if is_replica {
        out.tagged_field(1, |field| {
            field.i32(plan.replica_id);
            field.i64(-1);
            field.no_tagged_fields();
        });
    }
    out.into_bytes()
}

fn write_partition(out: &mut Writer, plan: &FetchPlan, at: Position) {
    out.i32(0);
    out.i32(plan.epoch);
    out.i64(at.end_offset);
    out.i32(at.last_epoch);
    out.i64(-1);
    out.i32(0);
    let tells_high_watermark = plan.version >= 18 && at.high_watermark != HIGH_WATERMARK_UNSUPPORTED;
    out.unsigned_varint(1 + u32::from(tells_high_watermark));
    // Written even if it is all zero, as Python's codec does.
    out.tagged_field(0, |field| field.uuid(plan.directory_id));
    if tells_high_watermark {
        out.tagged_field(1, |field| field.i64(at.high_watermark));
    }
}
