//! The requests that the engine answers itself, one file for each API.

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
pub mod share;
pub mod verification;

use klamm_base::primitives::WireError;
use klamm_metadata::MetadataImage;

use super::answer::Answer;
use super::core::Core;
use super::pipeline::{RequestContext, Topics};

/// One request that is being handled.
pub struct Call<'a> {
    pub core: &'a Core,
    pub context: RequestContext<'a>,
    /// The response; its frame and header are already started.
    pub answer: &'a mut Answer,
}

/// The outcome of a request.
pub enum Outcome {
    /// The response body is written.
    Answered,
    /// The request expects no response (acks=0).
    Silent,
    /// The response is written except for error codes that are not known yet.
    Acks(produce::WaitingProduce),
    /// Nothing is written yet: the fetch waits for data.
    Fetch(Box<fetch::WaitingFetch>),
    /// Nothing is written yet: the request of a share consumer waits.
    Share(Box<share::WaitingShare>),
    /// Nothing is done yet: the produce waits for the transaction coordinator, and is handled again with its answer.
    Verifies(Box<verification::Verification>),
    /// The connection must be closed, for this reason.
    Close(String),
}

impl<'a> Call<'a> {
    /// The topics of an image that this request may access.
    pub fn topics<'t>(&self, image: &'t MetadataImage) -> Topics<'t>
    where
        'a: 't,
    {
        Topics::new(&self.core.pipeline.authorizer, self.context.connection, self.context.api, image)
    }

    /// Handles a malformed request as Apache Kafka does.
    pub fn malformed(&self, error: WireError) -> Outcome {
        let (name, version) = (self.context.api.name, self.context.version);
        Outcome::Close(format!("malformed {name} request, version {version}: {error}"))
    }
}
