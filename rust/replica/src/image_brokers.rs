//! The brokers of the committed image, for the partitions of this one.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use klamm_metadata::MetadataImage;

use super::core::{BrokerStanding, Brokers};

/// Shared by all partitions of a broker: the image, and what does not change while the broker runs.
pub struct ImageBrokers {
    pub(super) node_id: i32,
    /// `replica.lag.time.max.ms`
    pub(super) lag_max_ms: i64,
    pub(super) image: ArcSwap<MetadataImage>,
    started: Instant,
}

impl ImageBrokers {
    pub(super) fn new(node_id: i32, lag_max_ms: i64) -> Arc<Self> {
        Arc::new(Self { node_id, lag_max_ms, image: ArcSwap::default(), started: Instant::now() })
    }

    /// Monotonic.
    pub(super) fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

impl Brokers for ImageBrokers {
    fn standing(&self, broker_id: i32) -> Option<BrokerStanding> {
        let image = self.image.load();
        let broker = image.brokers().get(&broker_id)?;
        Some(BrokerStanding { epoch: broker.epoch, is_active: broker.is_active() })
    }
}
