//! Share groups in the leader of a partition (KIP-932): sessions, share partitions, and what they ask of the share
//! coordinator.
//!
//! [`ShareGroups`] has all share partitions of a node. A [`LivePartition`] is a share partition of `klamm-share` with a lock
//! and the requests that wait for it. It is loaded when a session first fetches it, and dropped when another leader epoch
//! begins, its topic is deleted, its state is fenced, or its group has no session here any more. Writes leave as
//! [`Event::ShareState`] and return by [`Server::share_state_answered`].
//!
//! [`Event::ShareState`]: super::Event::ShareState
//! [`Server::share_state_answered`]: super::Server::share_state_answered

mod groups;
mod log_batches;
mod metrics;
mod partition;
mod sessions;
mod settings;
mod state_calls;
mod timers;

use klamm_metadata::MetadataImage;

/// The feature that enables share groups.
const SHARE_VERSION: &str = "share.version";

/// Whether the cluster has share groups.
pub fn is_enabled(image: &MetadataImage) -> bool {
    image.features().get(SHARE_VERSION).is_some_and(|level| *level > 0)
}

pub use groups::ShareGroups;
pub use log_batches::read_batches;
pub use partition::{LivePartition, Looked, Phase, ShareKey};
pub use sessions::{FINAL_EPOCH, INITIAL_EPOCH, MemberKey, ShareTarget, Subscription};
pub use settings::{Bounded, GroupSettings, ShareConfig};
pub use timers::run as run_timers;
