//! Random valid metadata: every record that a controller could write next.
use klamm_base::Uuid;

use crate::MetadataImage;
use crate::records::*;
use crate::version::MetadataVersion;

/// A random number generator with a seed (xorshift64*).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    pub fn uuid(&mut self) -> Uuid {
        Uuid(std::array::from_fn(|_| self.below(256) as u8))
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { items.get(self.below(items.len())) }
    }

    /// A record with up to two bytes changed, sometimes truncated.
    pub fn damaged(&mut self, record: &[u8]) -> Vec<u8> {
        let mut damaged = record.to_vec();
        for _ in 0..self.below(3) {
            let at = self.below(damaged.len());
            damaged[at] = self.below(256) as u8;
        }
        damaged.truncate(damaged.len() - self.below(damaged.len()) * usize::from(self.chance(10)));
        damaged
    }

    fn ids(&mut self) -> Vec<i32> {
        let count = 1 + self.below(5);
        let first = self.below(9);
        (0..count).map(|step| ((first + step) % 9) as i32).collect()
    }
}

/// A log of valid records: each was applied to the image before it.
pub struct Writer {
    pub rng: Rng,
    pub image: MetadataImage,
    pub records: Vec<Vec<u8>>,
}

impl Writer {
    pub fn new(seed: u64) -> Self {
        let mut writer = Self { rng: Rng::new(seed), image: MetadataImage::default(), records: Vec::new() };
        writer.write(FeatureLevelRecord { name: "metadata.version", feature_level: 30 });
        writer.write(FeatureLevelRecord { name: "eligible.leader.replicas.version", feature_level: 1 });
        writer
    }

    /// The records of `count` random steps.
    pub fn random(seed: u64, count: usize) -> Self {
        let mut writer = Self::new(seed);
        for _ in 0..count {
            writer.step();
        }
        writer
    }

    pub fn write<'r>(&mut self, record: impl Into<Record<'r>>) {
        let record = record.into();
        let bytes = record.encode(record.version_at(MetadataVersion::LATEST)).expect("a valid record");
        self.image = self.image.apply([bytes.as_slice()]).expect("a record that fits");
        self.records.push(bytes);
    }

    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(Vec::as_slice)
    }

    pub fn step(&mut self) {
        match self.rng.below(20) {
            0..=2 => self.create_topic(),
            3..=5 => self.set_partition(),
            6..=9 => self.change_partition(),
            10 => self.remove_topic(),
            11 | 12 => self.set_config(),
            13 => self.register(),
            14 => self.change_broker(),
            15 => self.set_quota(),
            16 => self.change_acl(),
            17 => self.change_credential(),
            18 => self.change_token(),
            _ => self.change_rest(),
        }
    }

    fn topic_ids(&self) -> Vec<Uuid> {
        self.image.topics().iter().map(|topic| topic.id()).collect()
    }

    pub fn create_topic(&mut self) {
        let name = format!("topic-{}", self.rng.below(40));
        if self.image.topics().by_name(&name).is_none() {
            let topic_id = self.rng.uuid();
            self.write(TopicRecord { name: &name, topic_id });
        }
    }

    fn remove_topic(&mut self) {
        let ids = self.topic_ids();
        if let Some(&topic_id) = self.rng.pick(&ids) {
            self.write(RemoveTopicRecord { topic_id });
        }
    }

    fn set_partition(&mut self) {
        let ids = self.topic_ids();
        let Some(&topic_id) = self.rng.pick(&ids) else { return };
        let replicas = self.rng.ids();
        let isr = replicas[..1 + self.rng.below(replicas.len())].to_vec();
        let dirs: Vec<Uuid> = replicas.iter().map(|&id| Uuid([id as u8 + 3; 16])).collect();
        let elr = replicas[isr.len()..].to_vec();
        let record = PartitionRecord {
            partition_id: self.rng.below(70) as i32,
            topic_id,
            replicas: (&replicas).into(),
            isr: (&isr).into(),
            leader: isr[0],
            leader_epoch: self.rng.below(9) as i32,
            partition_epoch: self.rng.below(9) as i32,
            directories: (&dirs).into(),
            leader_recovery_state: self.rng.below(2) as i8,
            eligible_leader_replicas: self.rng.chance(50).then_some((&elr).into()),
            ..PartitionRecord::default()
        };
        self.write(record);
    }

    fn change_partition(&mut self) {
        let topics: Vec<_> = self.image.topics().iter().cloned().collect();
        let Some(topic) = self.rng.pick(&topics) else { return };
        let partitions: Vec<i32> = topic.partitions().map(|(id, _)| id).collect();
        let Some(&partition_id) = self.rng.pick(&partitions) else { return };
        let (isr, replicas) = (self.rng.ids(), self.rng.ids());
        let dirs: Vec<Uuid> = replicas.iter().map(|_| self.rng.uuid()).collect();
        let reassigns = self.rng.chance(30);
        let record = PartitionChangeRecord {
            partition_id,
            topic_id: topic.id(),
            isr: self.rng.chance(60).then_some((&isr).into()),
            leader: self.rng.below(6) as i32 - 2,
            replicas: reassigns.then_some((&replicas).into()),
            directories: reassigns.then_some((&dirs).into()),
            adding_replicas: self.rng.chance(20).then_some((&isr).into()),
            removing_replicas: self.rng.chance(20).then_some((&isr[..0]).into()),
            eligible_leader_replicas: self.rng.chance(20).then_some((&isr).into()),
            last_known_elr: self.rng.chance(10).then_some((&isr[..1]).into()),
            leader_recovery_state: self.rng.below(3) as i8 - 1,
        };
        self.write(record);
    }

    fn set_config(&mut self) {
        let resource_type = *self.rng.pick(&[2i8, 4, 16, 32]).expect("not empty");
        let name = format!("{}", self.rng.below(4));
        let topic = format!("topic-{}", self.rng.below(40));
        let key = format!("key-{}", self.rng.below(4));
        let value = self.rng.chance(70).then_some("value");
        let resource_name = if resource_type == 2 { &topic } else { &name };
        self.write(ConfigRecord { resource_type, resource_name, name: &key, value });
    }

    fn register(&mut self) {
        let id = self.rng.below(9) as i32;
        let dirs = [self.rng.uuid(), self.rng.uuid()];
        if self.rng.chance(80) {
            let end_points = [BrokerEndpoint { name: "PLAINTEXT", host: "host", port: 9092, security_protocol: 0 }];
            let features =
                [BrokerFeature { name: "metadata.version", min_supported_version: 7, max_supported_version: 30 }];
            let record = RegisterBrokerRecord {
                broker_id: id,
                incarnation_id: dirs[0],
                broker_epoch: self.records.len() as i64,
                end_points: end_points.as_slice().into(),
                features: features.as_slice().into(),
                rack: Some("rack"),
                fenced: self.rng.chance(50),
                log_dirs: dirs[..self.rng.below(3)].into(),
                ..RegisterBrokerRecord::default()
            };
            self.write(record);
        } else {
            let end_points = [ControllerEndpoint { name: "C", host: "host", port: 1, security_protocol: 0 }];
            let incarnation_id = dirs[0];
            self.write(RegisterControllerRecord {
                controller_id: id,
                incarnation_id,
                end_points: end_points.as_slice().into(),
                ..RegisterControllerRecord::default()
            });
        }
    }

    fn change_broker(&mut self) {
        let brokers: Vec<_> = self.image.brokers().values().cloned().collect();
        let Some(broker) = self.rng.pick(&brokers) else { return };
        let (broker_id, broker_epoch) = (broker.id, broker.epoch);
        let dirs = [self.rng.uuid()];
        match self.rng.below(4) {
            0 => self.write(UnregisterBrokerRecord { broker_id, broker_epoch }),
            1 => self.write(FenceBrokerRecord { id: broker_id, epoch: broker_epoch }),
            2 => self.write(UnfenceBrokerRecord { id: broker_id, epoch: broker_epoch }),
            _ => {
                let record = BrokerRegistrationChangeRecord {
                    broker_id,
                    broker_epoch,
                    fenced: self.rng.below(3) as i8 - 1,
                    in_controlled_shutdown: self.rng.below(2) as i8,
                    log_dirs: dirs[..self.rng.below(2)].into(),
                    cordoned_log_dirs: self.rng.chance(30).then_some(dirs[..].into()),
                };
                self.write(record);
            }
        }
    }

    fn set_quota(&mut self) {
        let user = format!("user-{}", self.rng.below(3));
        let entity = [EntityData { entity_type: "user", entity_name: self.rng.chance(70).then_some(&user) }];
        let key = *self.rng.pick(&["producer_byte_rate", "request_percentage"]).expect("not empty");
        let (value, remove) = (self.rng.below(100) as f64, self.rng.chance(40));
        self.write(ClientQuotaRecord { entity: entity.as_slice().into(), key, value, remove });
    }

    fn change_acl(&mut self) {
        let ids: Vec<Uuid> = self.image.acls().keys().copied().collect();
        match self.rng.pick(&ids) {
            Some(&id) if self.rng.chance(40) => self.write(RemoveAccessControlEntryRecord { id }),
            _ => {
                let id = self.rng.uuid();
                let resource_type = self.rng.below(5) as i8;
                let record = AccessControlEntryRecord { id, resource_type, principal: "User:a", ..Default::default() };
                self.write(record);
            }
        }
    }

    fn change_credential(&mut self) {
        let (user, mechanism) = (format!("user-{}", self.rng.below(3)), 1 + self.rng.below(2) as i8);
        if self.rng.chance(40) {
            self.write(RemoveUserScramCredentialRecord { name: &user, mechanism });
        } else {
            let salt = self.rng.uuid().0;
            let record = UserScramCredentialRecord { name: &user, mechanism, salt: &salt, ..Default::default() };
            self.write(record);
        }
    }

    fn change_token(&mut self) {
        let token_id = format!("token-{}", self.rng.below(4));
        if self.rng.chance(40) {
            self.write(RemoveDelegationTokenRecord { token_id: &token_id });
        } else {
            let expiration_timestamp = self.rng.below(1000) as i64;
            let renewers = ["User:b", "User:c"];
            let renewers = renewers.as_slice().into();
            let record =
                DelegationTokenRecord { token_id: &token_id, renewers, expiration_timestamp, ..Default::default() };
            self.write(record);
        }
    }

    fn change_rest(&mut self) {
        match self.rng.below(8) {
            0 => {
                let feature_level = self.rng.below(2) as i16;
                self.write(FeatureLevelRecord { name: "group.version", feature_level });
            }
            1 => {
                let next_producer_id = self.rng.below(9000) as i64;
                self.write(ProducerIdsRecord { next_producer_id, ..Default::default() });
            }
            2 => self.write(ClearElrRecord { topic_name: "" }),
            3 => self.write(NoOpRecord {}),
            4 => self.write(ZkMigrationStateRecord { zk_migration_state: 0 }),
            5 => {
                let topics: Vec<_> = self.image.topics().iter().cloned().collect();
                let Some(topic) = self.rng.pick(&topics) else { return };
                self.write(ClearElrRecord { topic_name: topic.name() });
            }
            _ if self.image.in_transaction() => {
                if self.rng.chance(60) {
                    self.write(EndTransactionRecord {});
                } else {
                    self.write(AbortTransactionRecord { reason: Some("test") });
                }
            }
            _ => self.write(BeginTransactionRecord { name: None }),
        }
    }
}
