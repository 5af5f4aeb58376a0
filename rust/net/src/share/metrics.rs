//! Counters of share groups, under the names of Apache Kafka's metrics.

use klamm_base::counters::{Counter, Named};
use klamm_share::AckType;

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
}

impl ShareMetrics {
    /// So many records were acknowledged with this type.
    pub fn acknowledged(&self, id: u8, count: u64) {
        if let Some(counter) = self.acknowledgements.get(usize::from(id)) {
            counter.add(count);
        }
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
        acknowledged.chain(single.into_iter().map(|(name, counter)| (name.to_owned(), counter.get())))
    }
}
