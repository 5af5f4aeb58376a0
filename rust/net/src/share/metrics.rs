//! Counters of share groups, under the names of Apache Kafka's metrics.

use std::collections::HashMap;
use std::sync::Arc;

use klamm_base::counters::{Counter, Named, mbean_value};
use klamm_share::AckType;
use parking_lot::Mutex;

#[derive(Default)]
pub struct ShareMetrics {
    /// By number of the type.
    acknowledgements: [Counter; 5],
    pub load_ms: Counter,
    pub loads: Counter,
    pub lock_timeouts: Counter,
    pub evictions: Counter,
    pub fetch_requests: Counter,
    pub failed_fetches: Counter,
    pub acknowledge_requests: Counter,
    pub failed_acknowledges: Counter,
    /// Fetches that were answered because they had waited for as long as they may.
    pub expirations: Counter,
    fetch_ratios: Mutex<HashMap<Arc<str>, FetchRatios>>,
}

/// Of one group: fetches, and the sum of the percentages of their share partitions that could be read.
#[derive(Default)]
struct FetchRatios {
    count: u64,
    percent: u64,
}

impl ShareMetrics {
    /// So many records were acknowledged with this type.
    pub fn acknowledged(&self, id: u8, count: u64) {
        if let Some(counter) = self.acknowledgements.get(usize::from(id)) {
            counter.add(count);
        }
    }

    /// A fetch of the group was answered: so many of its share partitions could be read.
    pub fn fetched(&self, group: &Arc<str>, read: usize, wanted: usize) {
        let mut ratios = self.fetch_ratios.lock();
        let ratios = match ratios.get_mut(group) {
            Some(ratios) => ratios,
            None => ratios.entry(group.clone()).or_default(),
        };
        ratios.count += 1;
        ratios.percent += 100 * read as u64 / wanted.max(1) as u64;
    }

    fn named_fetch_ratios(&self) -> Vec<Named> {
        let ratios = self.fetch_ratios.lock();
        let named = ratios.iter().flat_map(|(group, ratios)| {
            let (name, group) = ("type=ShareGroupMetrics,name=RequestTopicPartitionsFetchRatio", mbean_value(group));
            let count = (format!("kafka.server:{name},group={group}"), ratios.count);
            [count, (format!("klamm.share:{name}Total,group={group}"), ratios.percent)]
        });
        named.collect()
    }

    pub fn named(&self) -> impl Iterator<Item = Named> + '_ {
        let types = [AckType::Gap, AckType::Accept, AckType::Release, AckType::Reject, AckType::Renew];
        let acknowledged = types.into_iter().zip(&self.acknowledgements).map(|(ack, counter)| {
            let name = "kafka.server:type=ShareGroupMetrics,name=RecordAcknowledgementsPerSec";
            (format!("{name},ackType={ack:?}"), counter.get())
        });
        let single = [
            ("kafka.server:type=ShareGroupMetrics,name=PartitionLoadTimeMs", &self.loads),
            ("klamm.share:type=ShareGroupMetrics,name=PartitionLoadTimeMsTotal", &self.load_ms),
            ("kafka.server:type=SharePartitionMetrics,name=AcquisitionLockTimeoutPerSec", &self.lock_timeouts),
            ("kafka.server:type=ShareSessionCache,name=ShareSessionEvictionsPerSec", &self.evictions),
            ("kafka.server:type=DelayedShareFetchMetrics,name=ExpiresPerSec", &self.expirations),
            ("kafka.server:type=BrokerTopicMetrics,name=TotalShareFetchRequestsPerSec", &self.fetch_requests),
            ("kafka.server:type=BrokerTopicMetrics,name=FailedShareFetchRequestsPerSec", &self.failed_fetches),
            (
                "kafka.server:type=BrokerTopicMetrics,name=TotalShareAcknowledgementRequestsPerSec",
                &self.acknowledge_requests,
            ),
            (
                "kafka.server:type=BrokerTopicMetrics,name=FailedShareAcknowledgementRequestsPerSec",
                &self.failed_acknowledges,
            ),
        ];
        let single = single.into_iter().map(|(name, counter)| (name.to_owned(), counter.get()));
        acknowledged.chain(single).chain(self.named_fetch_ratios())
    }
}
