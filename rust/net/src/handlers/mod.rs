//! The requests that the engine answers itself, a file each.

pub mod api_versions;
pub mod describe_topic_partitions;
pub mod fetch;
pub mod leaders;
pub mod list_offsets;
pub mod metadata;
pub mod offset_for_leader_epoch;
pub mod produce;
mod repeats;
pub mod replica_fetch;

use klamm_base::primitives::WireError;
use klamm_metadata::MetadataImage;

use super::answer::Answer;
use super::core::Core;
use super::pipeline::{RequestContext, Topics};

/// One request on its way through a handler.
pub struct Call<'a> {
    pub core: &'a Core,
    pub context: RequestContext<'a>,
    /// Where the answer goes; its frame and header are begun.
    pub answer: &'a mut Answer,
}

/// What became of a request.
pub enum Outcome {
    /// The answer's body is written.
    Answered,
    /// The request wants no answer (acks=0).
    Silent,
    /// The answer is written but for error codes that are not known yet.
    Acks(produce::WaitingProduce),
    /// Nothing is written yet: the fetch waits for data.
    Fetch(Box<fetch::WaitingFetch>),
    /// The connection has to be closed, for this reason.
    Close(String),
}

impl<'a> Call<'a> {
    /// The topics of an image as this request may see them.
    pub fn topics<'t>(&self, image: &'t MetadataImage) -> Topics<'t>
    where
        'a: 't,
    {
        Topics::new(&self.core.pipeline.authorizer, self.context.connection, self.context.api, image)
    }

    /// What Apache Kafka does with a request that it cannot read.
    pub fn malformed(&self, error: WireError) -> Outcome {
        let (name, version) = (self.context.api.name, self.context.version);
        Outcome::Close(format!("malformed {name} request, version {version}: {error}"))
    }
}
