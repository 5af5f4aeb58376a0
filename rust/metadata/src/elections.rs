//! Elections for many partitions at once: the effect of a broker's state change on all of its partitions.
use klamm_base::{ErrorCode, Uuid};

use crate::MetadataImage;
use crate::configs;
use crate::election::{Brokers, ChangeBuilder, Election, ElectionRules};
use crate::partition::{LeaderRecoveryState, Partition};
use crate::records::NO_LEADER;
use crate::topic::Topic;
use crate::version::MetadataVersion;

const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";
const UNCLEAN_LEADER_ELECTION_ENABLE: &str = "unclean.leader.election.enable";

/// The part of the controller's own configuration that elections need. A topic's value takes precedence over the
/// dynamic value of this node, that over the cluster-wide dynamic default, and that over the values here.
#[derive(Clone, Copy, Debug)]
pub struct ElectionDefaults {
    /// Id of the controller's node.
    pub node_id: i32,
    pub min_insync_replicas: usize,
    pub unclean_leader_election_enable: bool,
}

/// A state change of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerEvent {
    /// It is fenced, or was restarted with another incarnation id after a clean shutdown.
    Fenced,
    /// It is about to be unfenced, and counts as active already.
    Unfenced,
    /// It requested a controlled shutdown.
    ControlledShutdown,
    /// It is unregistered.
    Unregistered,
    /// It was restarted without its unflushed records. Without ELR this is the same as being fenced.
    UncleanShutdown,
}

/// Where a walk over the partitions continues: the slot of a topic, and the partition in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub slot: u32,
    pub partition: i32,
}

/// Limits on one part of a walk, so that other work gets its turn.
#[derive(Clone, Copy, Debug)]
pub struct PartLimits {
    pub records: usize,
    /// The number of partitions that are visited.
    pub partitions: usize,
}

impl PartLimits {
    pub const NONE: Self = Self { records: usize::MAX, partitions: usize::MAX };
}

/// A requested change of one partition; `None` means unchanged.
#[derive(Clone, Debug, Default)]
pub struct WantedChange {
    pub isr: Option<Vec<i32>>,
    pub replicas: Option<Vec<i32>>,
    pub removing: Option<Vec<i32>>,
    pub adding: Option<Vec<i32>>,
    pub leader_recovery_state: Option<LeaderRecoveryState>,
    /// A broker and the directory of its replica.
    pub directory: Option<(i32, Uuid)>,
    /// `None`: online, or unclean if the topic allows it.
    pub election: Option<Election>,
}

/// Elections over an image.
pub struct Elections<'a> {
    image: &'a MetadataImage,
    defaults: ElectionDefaults,
    metadata_version: MetadataVersion,
    elr_enabled: bool,
    /// A broker that must not lead, whatever the image says.
    leaving: Option<i32>,
    /// A broker that may lead, whatever the image says.
    coming: Option<i32>,
}

/// The result of an administrator's election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The record of the change.
    Elected(Vec<u8>),
    Refused(ErrorCode),
}

fn is_needed(election: Election, partition: &Partition) -> bool {
    match election {
        Election::Preferred => partition.leader() != partition.preferred_leader(),
        Election::Online | Election::Unclean => partition.leader() == NO_LEADER,
    }
}

/// The rules for every partition of a topic, looked up once.
#[derive(Clone, Copy)]
struct TopicRules {
    rules: ElectionRules,
    allows_unclean: bool,
}

impl<'a> Elections<'a> {
    /// Elections based on this image.
    pub fn new(image: &'a MetadataImage, defaults: ElectionDefaults) -> Self {
        let metadata_version = image.metadata_version().unwrap_or(MetadataVersion::MINIMUM);
        let elr_enabled = image.is_elr_enabled();
        Self { image, defaults, metadata_version, elr_enabled, leaving: None, coming: None }
    }

    /// The partition records for a broker event; the caller writes the record of the registration itself.
    pub fn for_broker(self, event: BrokerEvent, broker_id: i32) -> Vec<Vec<u8>> {
        self.part_for_broker(event, broker_id, Place::default(), PartLimits::NONE).0
    }

    /// A part of the same for the partitions from `from` on; also returns where the next part starts, `None` after
    /// the last one.
    pub fn part_for_broker(
        mut self,
        event: BrokerEvent,
        broker_id: i32,
        from: Place,
        limits: PartLimits,
    ) -> (Vec<Vec<u8>>, Option<Place>) {
        let counts = self.image.topics().counts();
        let of_broker = counts.of(broker_id);
        if event == BrokerEvent::Unfenced {
            self.coming = Some(broker_id);
            let has_no_leader = |partition: &Partition| partition.leader() == NO_LEADER;
            return self.elect(counts.leaderless, from, limits, has_no_leader, |builder| builder);
        }
        self.leaving = Some(broker_id);
        let is_unclean = event == BrokerEvent::UncleanShutdown && self.elr_enabled;
        let leave = |builder: ChangeBuilder<'a>| match is_unclean {
            true => builder.after_unclean_shutdown(broker_id),
            false => builder.without(broker_id),
        };
        if is_unclean || event == BrokerEvent::Unregistered {
            let count = of_broker.in_sync + of_broker.eligible;
            let is_concerned =
                |partition: &Partition| partition.isr().contains(&broker_id) || partition.elr().contains(&broker_id);
            return self.elect(count, from, limits, is_concerned, leave);
        }
        self.elect(of_broker.in_sync, from, limits, |partition| partition.isr().contains(&broker_id), leave)
    }

    /// The partition records for directories of a broker that went offline.
    pub fn for_offline_dirs(mut self, broker_id: i32, directories: &[Uuid]) -> Vec<Vec<u8>> {
        self.leaving = Some(broker_id);
        let topics = self.image.topics();
        let numbers: Vec<u32> = directories.iter().filter_map(|&id| topics.directory_table().find(id)).collect();
        let is_in =
            |partition: &Partition| partition.directory_of(broker_id).is_some_and(|number| numbers.contains(&number));
        let count = topics.counts().of(broker_id).replicas;
        self.elect(count, Place::default(), PartLimits::NONE, is_in, |builder| builder.without(broker_id)).0
    }

    /// A broker reports the directories of its replicas (KIP-858): returns the result of each assignment, and the
    /// records. If the directory has gone offline meanwhile, the broker loses the leadership of the partition.
    pub fn assign_directories(
        mut self,
        broker_id: i32,
        assignments: &[(Uuid, Uuid, i32)],
    ) -> (Vec<ErrorCode>, Vec<Vec<u8>>) {
        let mut records = Vec::new();
        let mut offline = Vec::new();
        let mut codes = Vec::with_capacity(assignments.len());
        for &(directory_id, topic_id, partition_id) in assignments {
            let code = self.check_replica(broker_id, topic_id, partition_id);
            codes.push(code);
            if code.is_error() {
                continue;
            }
            let wanted = WantedChange {
                directory: Some((broker_id, directory_id)),
                // Only a replica that goes offline may cause an unclean election.
                election: Some(Election::Online),
                ..WantedChange::default()
            };
            records.extend(self.change(topic_id, partition_id, wanted));
            let broker = self.image.brokers().get(&broker_id);
            if !broker.is_some_and(|broker| broker.has_online_dir(directory_id)) {
                offline.push((topic_id, partition_id));
            }
        }
        self.leaving = Some(broker_id);
        for (topic_id, partition_id) in offline {
            let topic = self.image.topics().by_id(topic_id);
            let isr = topic.and_then(|topic| topic.partition(partition_id)).map(Partition::isr).unwrap_or_default();
            let isr = isr.iter().copied().filter(|&id| id != broker_id).collect();
            let wanted = WantedChange { isr: Some(isr), ..WantedChange::default() };
            records.extend(self.change(topic_id, partition_id, wanted));
        }
        (codes, records)
    }

    fn check_replica(&self, broker_id: i32, topic_id: Uuid, partition_id: i32) -> ErrorCode {
        let Some(topic) = self.image.topics().by_id(topic_id) else { return ErrorCode::UNKNOWN_TOPIC_ID };
        match topic.partition(partition_id) {
            None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            Some(partition) if !partition.replicas().contains(&broker_id) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            Some(_) => ErrorCode::NONE,
        }
    }

    /// Up to `limit` records that move leadership back to the preferred leaders.
    pub fn preferred_leaders(&self, limit: usize) -> Vec<Vec<u8>> {
        let imbalanced = self.image.topics().counts().imbalanced;
        let is_imbalanced = |partition: &Partition| partition.leader() != partition.preferred_leader();
        let limits = PartLimits { records: limit, ..PartLimits::NONE };
        let elect = |_, builder: ChangeBuilder<'a>| Some(builder.election(Election::Preferred));
        self.walk(imbalanced, Place::default(), limits, is_imbalanced, elect).0
    }

    /// Up to `limit` records that elect leaders for leaderless partitions of topics that allow unclean elections.
    pub fn unclean_leaders(&self, limit: usize) -> Vec<Vec<u8>> {
        let leaderless = self.image.topics().counts().leaderless;
        let has_no_leader = |partition: &Partition| partition.leader() == NO_LEADER;
        let limits = PartLimits { records: limit, ..PartLimits::NONE };
        let elect = |rules: TopicRules, builder: ChangeBuilder<'a>| {
            rules.allows_unclean.then(|| builder.election(Election::Unclean))
        };
        self.walk(leaderless, Place::default(), limits, has_no_leader, elect).0
    }

    /// The record that changes one partition as requested; `None` if nothing changes or there is no such partition.
    pub fn change(&self, topic_id: Uuid, partition_id: i32, wanted: WantedChange) -> Option<Vec<u8>> {
        let topic = self.image.topics().by_id(topic_id)?;
        let partition = topic.partition(partition_id)?;
        let topic_rules = self.topic_rules(topic);
        let builder = ChangeBuilder::new(partition, topic_rules.rules)
            .election(wanted.election.unwrap_or(topic_rules.default_election()));
        let change = wanted.apply_to(builder).build(&self.brokers_of(partition))?;
        Some(change.encode(topic_id, partition_id, self.metadata_version))
    }

    /// Elections for an administrator (ElectLeaders): for the given partitions, or for all that need one.
    pub fn elect_leaders(&self, election: Election, partitions: Option<&[(Uuid, i32)]>) -> Vec<(Uuid, i32, Outcome)> {
        let topics = self.image.topics();
        if let Some(partitions) = partitions {
            let elect = |&(topic_id, id): &(Uuid, i32)| (topic_id, id, self.elect_leader(election, topic_id, id));
            return partitions.iter().map(elect).collect();
        }
        let needed = topics.iter().flat_map(|topic| {
            let concerned = topic.partitions().filter(|(_, partition)| is_needed(election, partition));
            concerned.map(|(id, _)| (topic.id(), id))
        });
        needed.map(|(topic_id, id)| (topic_id, id, self.elect_leader(election, topic_id, id))).collect()
    }

    fn elect_leader(&self, election: Election, topic_id: Uuid, partition_id: i32) -> Outcome {
        let topic = self.image.topics().by_id(topic_id);
        let Some(partition) = topic.and_then(|topic| topic.partition(partition_id)) else {
            return Outcome::Refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        };
        if !is_needed(election, partition) {
            return Outcome::Refused(ErrorCode::ELECTION_NOT_NEEDED);
        }
        let wanted = WantedChange { election: Some(election), ..WantedChange::default() };
        match (self.change(topic_id, partition_id, wanted), election) {
            (Some(record), _) => Outcome::Elected(record),
            (None, Election::Preferred) => Outcome::Refused(ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE),
            (None, _) => Outcome::Refused(ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE),
        }
    }

    fn elect(
        &self,
        count: u32,
        from: Place,
        limits: PartLimits,
        is_concerned: impl Fn(&Partition) -> bool,
        change: impl Fn(ChangeBuilder<'a>) -> ChangeBuilder<'a>,
    ) -> (Vec<Vec<u8>>, Option<Place>) {
        self.walk(count, from, limits, is_concerned, |rules, builder| {
            Some(change(builder).election(rules.default_election()))
        })
    }

    /// The records of the affected partitions, of which there are at most `count` in total, from a place on; also
    /// returns the place where a limit was reached.
    fn walk(
        &self,
        count: u32,
        from: Place,
        limits: PartLimits,
        is_concerned: impl Fn(&Partition) -> bool,
        change: impl Fn(TopicRules, ChangeBuilder<'a>) -> Option<ChangeBuilder<'a>>,
    ) -> (Vec<Vec<u8>>, Option<Place>) {
        let mut records = Vec::with_capacity(limits.records.min(count as usize));
        let (mut left, mut looked_at) = (count, 0);
        for (slot, topic) in self.image.topics().iter_from(from.slot) {
            if left == 0 {
                break;
            }
            if looked_at >= limits.partitions {
                return (records, Some(Place { slot, partition: 0 }));
            }
            looked_at += topic.partition_count();
            let first = if slot == from.slot { from.partition } else { 0 };
            let mut topic_rules = None;
            let concerned = topic.partitions().filter(|(id, partition)| *id >= first && is_concerned(partition));
            for (partition_id, partition) in concerned {
                if records.len() == limits.records {
                    return (records, Some(Place { slot, partition: partition_id }));
                }
                left = left.saturating_sub(1);
                let topic_rules = *topic_rules.get_or_insert_with(|| self.topic_rules(topic));
                let builder = change(topic_rules, ChangeBuilder::new(partition, topic_rules.rules));
                if let Some(change) = builder.and_then(|builder| builder.build(&self.brokers_of(partition))) {
                    records.push(change.encode(topic.id(), partition_id, self.metadata_version));
                }
            }
        }
        (records, None)
    }

    fn topic_rules(&self, topic: &Topic) -> TopicRules {
        let configured = self.effective(topic.name(), MIN_INSYNC_REPLICAS).and_then(|value| value.trim().parse().ok());
        let replication_factor = topic.partition(0).map_or(usize::MAX, |partition| partition.replicas().len());
        let unclean = self.effective(topic.name(), UNCLEAN_LEADER_ELECTION_ENABLE);
        TopicRules {
            rules: ElectionRules {
                metadata_version: self.metadata_version,
                elr_enabled: self.elr_enabled,
                min_isr: configured.unwrap_or(self.defaults.min_insync_replicas).min(replication_factor),
            },
            allows_unclean: unclean.map_or(self.defaults.unclean_leader_election_enable, |value| {
                value.trim().eq_ignore_ascii_case("true")
            }),
        }
    }

    fn effective(&self, topic_name: &str, key: &str) -> Option<&'a str> {
        let configs = self.image.configs();
        let of_topic = configs.value(configs::TOPIC, topic_name, key);
        of_topic
            .or_else(|| configs.value(configs::BROKER, &self.defaults.node_id.to_string(), key))
            .or_else(|| configs.value(configs::BROKER, "", key))
    }

    fn brokers_of(&self, partition: &'a Partition) -> BrokersOf<'_, 'a> {
        BrokersOf { elections: self, partition }
    }
}

impl WantedChange {
    fn apply_to(self, mut builder: ChangeBuilder<'_>) -> ChangeBuilder<'_> {
        if let Some(isr) = self.isr {
            builder = builder.isr(isr.into());
        }
        if let Some(replicas) = self.replicas {
            builder = builder.replicas(replicas.into());
        }
        if let Some(removing) = self.removing {
            builder = builder.removing(removing.into());
        }
        if let Some(adding) = self.adding {
            builder = builder.adding(adding.into());
        }
        if let Some(state) = self.leader_recovery_state {
            builder = builder.leader_recovery_state(state);
        }
        if let Some((broker_id, directory_id)) = self.directory {
            builder = builder.directory(broker_id, directory_id);
        }
        builder
    }
}

impl TopicRules {
    fn default_election(&self) -> Election {
        if self.allows_unclean { Election::Unclean } else { Election::Online }
    }
}

/// The brokers from the point of view of one partition.
struct BrokersOf<'e, 'a> {
    elections: &'e Elections<'a>,
    partition: &'a Partition,
}

impl BrokersOf<'_, '_> {
    fn present_directory(&self, broker_id: i32) -> Option<Uuid> {
        let number = self.partition.directory_of(broker_id)?;
        self.elections.image.topics().directory_table().ids(std::iter::once(number)).pop()
    }
}

impl Brokers for BrokersOf<'_, '_> {
    fn may_lead(&self, broker_id: i32) -> bool {
        let Elections { image, leaving, coming, .. } = self.elections;
        let Some(broker) = image.brokers().get(&broker_id) else { return false };
        let may_lead = Some(broker_id) != *leaving && (Some(broker_id) == *coming || broker.is_active());
        may_lead && self.present_directory(broker_id).is_some_and(|directory| broker.has_online_dir(directory))
    }

    fn directory_of(&self, broker_id: i32) -> Uuid {
        self.present_directory(broker_id).unwrap_or_else(|| {
            let broker = self.elections.image.brokers().get(&broker_id);
            broker.map_or(Uuid::UNASSIGNED, |broker| broker.default_dir())
        })
    }
}
