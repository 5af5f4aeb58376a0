//! The brokers of the committed image, for the partitions of this one.

use std::sync::Arc;

use arc_swap::ArcSwap;
use klamm_base::clock::Clock;
use klamm_config::Settings;
use klamm_metadata::MetadataImage;

use super::core::{BrokerStanding, Brokers, Rule};

/// The value of `replica.selector.class` with which consumers read from the replica in their rack.
const RACK_AWARE_SELECTOR: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

/// Shared by all partitions of a broker: the image, and what does not change while the broker runs.
pub struct ImageBrokers {
    pub(super) node_id: i32,
    /// `replica.lag.time.max.ms`
    pub(super) lag_max_ms: i64,
    /// `replica.selector.class` is the rack-aware one.
    pub(super) consumers_read_in_their_rack: bool,
    pub(super) image: ArcSwap<MetadataImage>,
    /// Left out by a simulation.
    pub(super) without: Option<Rule>,
    clock: Arc<dyn Clock>,
}

impl ImageBrokers {
    pub(super) fn new(node_id: i32, settings: &Settings, clock: Arc<dyn Clock>, without: Option<Rule>) -> Arc<Self> {
        Arc::new(Self {
            node_id,
            lag_max_ms: settings.number("replica.lag.time.max.ms"),
            consumers_read_in_their_rack: settings.text("replica.selector.class") == RACK_AWARE_SELECTOR,
            image: ArcSwap::default(),
            without,
            clock,
        })
    }

    /// Whether the product's rule holds here.
    pub(super) fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Monotonic.
    pub(super) fn now_ms(&self) -> i64 {
        self.clock.monotonic_ms()
    }
}

impl Brokers for ImageBrokers {
    fn is_in_rack(&self, broker_id: i32, rack: &str) -> bool {
        self.image.load().brokers().get(&broker_id).is_some_and(|broker| broker.rack.as_deref() == Some(rack))
    }

    fn standing(&self, broker_id: i32) -> Option<BrokerStanding> {
        let image = self.image.load();
        let broker = image.brokers().get(&broker_id)?;
        Some(BrokerStanding { epoch: broker.epoch, is_active: broker.is_active() })
    }
}
