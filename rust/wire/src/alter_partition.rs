//! AlterPartition v3 as a leader's broker sends it: proposed ISRs, and the controller's answers (KIP-497, KIP-903).

use klamm_base::primitives::{WireError, Writer};
use klamm_base::{ErrorCode, Uuid};

use super::versioned::{VersionedReader, VersionedWriter};

/// A proposed ISR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedIsr {
    pub topic_id: Uuid,
    pub index: i32,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    /// Id and broker epoch (-1: not known) of each member.
    pub members: Vec<(i32, i64)>,
}

/// What the controller committed, or its error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedIsr {
    pub topic_id: Uuid,
    pub index: i32,
    pub error: ErrorCode,
    pub leader_epoch: i32,
    pub isr: Vec<i32>,
    pub partition_epoch: i32,
}

/// The body of a request. Proposals of a topic must be adjacent.
pub fn write_request(broker_id: i32, broker_epoch: i64, proposals: &[ProposedIsr]) -> Vec<u8> {
    let mut writer = Writer::with_capacity(64 + 64 * proposals.len());
    let mut out = VersionedWriter::new(&mut writer, true);
    out.i32(broker_id);
    out.i64(broker_epoch);
    let same_topic = |one: &ProposedIsr, other: &ProposedIsr| one.topic_id == other.topic_id;
    out.array_len(proposals.chunk_by(same_topic).count());
    for of_topic in proposals.chunk_by(same_topic) {
        out.uuid(of_topic[0].topic_id);
        out.array_len(of_topic.len());
        for proposal in of_topic {
            out.i32(proposal.index);
            out.i32(proposal.leader_epoch);
            out.array_len(proposal.members.len());
            for (id, epoch) in &proposal.members {
                out.i32(*id);
                out.i64(*epoch);
                out.no_tags();
            }
            // RECOVERED: a leader repairs nothing after an unclean election.
            out.i8(0);
            out.i32(proposal.partition_epoch);
            out.no_tags();
        }
        out.no_tags();
    }
    out.no_tags();
    writer.into_bytes()
}

/// The partitions of a response, or its top-level error.
pub fn read_response(body: &[u8]) -> Result<Result<Vec<CommittedIsr>, ErrorCode>, WireError> {
    let mut reader = VersionedReader::new(body, true);
    reader.i32()?;
    let error = ErrorCode(reader.i16()?);
    let mut partitions = Vec::new();
    for _ in 0..reader.array_len(18)? {
        let topic_id = reader.uuid()?;
        for _ in 0..reader.array_len(21)? {
            let (index, error) = (reader.i32()?, ErrorCode(reader.i16()?));
            reader.i32()?;
            let leader_epoch = reader.i32()?;
            let isr = reader.array(4, VersionedReader::i32)?;
            reader.i8()?;
            let partition_epoch = reader.i32()?;
            reader.skip_tags()?;
            partitions.push(CommittedIsr { topic_id, index, error, leader_epoch, isr, partition_epoch });
        }
        reader.skip_tags()?;
    }
    reader.skip_tags()?;
    Ok(if error.is_error() { Err(error) } else { Ok(partitions) })
}
