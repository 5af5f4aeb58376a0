//! The image for random valid logs.
use std::collections::{BTreeMap, BTreeSet};

use klamm_base::Uuid;
use proptest::prelude::*;

use crate::MetadataImage;
use crate::counts::PartitionCounts;
use crate::delta::Delta;
use crate::image_records::{UnwritableError, for_each_record};
use crate::records::*;
use crate::replay_error::ReplayError;
use crate::testing::{Rng, Writer};

fn replayed<'r>(records: impl Iterator<Item = &'r [u8]>) -> MetadataImage {
    MetadataImage::default().apply(records).expect("valid records")
}

fn records_of(image: &MetadataImage) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for_each_record(image, |record, version| {
        records.push(record.encode(version).expect("the image fits its version"));
        Ok::<(), UnwritableError>(())
    })
    .expect("there is a metadata.version");
    records
}

fn image_with(records: &[Record<'_>]) -> Result<MetadataImage, ReplayError> {
    let encoded: Vec<Vec<u8>> = records
        .iter()
        .map(|record| record.encode(SCHEMAS.iter().find(|s| s.id == record.id()).expect("a schema").version_max))
        .collect::<Result<_, _>>()
        .expect("valid records");
    MetadataImage::default().apply(encoded.iter().map(Vec::as_slice)).map_err(|error| error.error)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_into_batches_gives_one_image(seed in any::<u64>(), batch in 1usize..40) {
        let writer = Writer::random(seed, 300);
        let mut image = MetadataImage::default();
        for records in writer.records.chunks(batch) {
            image = image.apply(records.iter().map(Vec::as_slice)).expect("valid records");
        }
        prop_assert!(image == writer.image);
        prop_assert!(image == replayed(writer.slices()));
    }

    #[test]
    fn its_records_give_the_image_again(seed in any::<u64>()) {
        let writer = Writer::random(seed, 300);
        let records = records_of(&writer.image);
        let again = replayed(records.iter().map(Vec::as_slice));
        prop_assert!(again == *writer.image.stable());
        prop_assert_eq!(records_of(&again).len(), records.len());
    }

    #[test]
    fn an_image_is_immutable(seed in any::<u64>()) {
        let mut writer = Writer::random(seed, 150);
        let (older, before) = (writer.image.clone(), writer.records.len());
        (0..150).for_each(|_| writer.step());
        prop_assert!(older == replayed(writer.slices().take(before)));
    }

    #[test]
    fn counts_are_those_of_the_partitions(seed in any::<u64>()) {
        let writer = Writer::random(seed, 300);
        let counts = writer.image.topics().counts();
        let mut recount = PartitionCounts::default();
        for topic in writer.image.topics().iter() {
            topic.partitions().for_each(|(_, partition)| recount.add(partition));
        }
        for broker in 0..9 {
            prop_assert_eq!(counts.of(broker), recount.of(broker));
        }
        let totals = |counts: &PartitionCounts| {
            (counts.partitions, counts.leaderless, counts.imbalanced, counts.reassigning)
        };
        prop_assert_eq!(totals(counts), totals(&recount));
    }

    #[test]
    fn the_delta_names_what_differs(seed in any::<u64>(), reloaded in any::<bool>()) {
        let mut writer = Writer::random(seed, 200);
        let older = writer.image.stable().clone();
        (0..80).for_each(|_| writer.step());
        let newer = match reloaded {
            true => replayed(records_of(&writer.image).iter().map(Vec::as_slice)),
            false => writer.image.stable().clone(),
        };
        let delta = Delta::between(&older, &newer);
        prop_assert!(!delta.is_empty() || older == newer);
        prop_assert!(Delta::between(&newer, &newer.clone()).is_empty());
        let ids = |image: &MetadataImage| image.topics().iter().map(|topic| topic.id()).collect::<BTreeSet<Uuid>>();
        let (old_ids, new_ids) = (ids(&older), ids(&newer));
        let created: BTreeSet<Uuid> = delta.created_topics.iter().map(|topic| topic.id()).collect();
        let deleted: BTreeSet<Uuid> = delta.deleted_topics.iter().map(|topic| topic.id()).collect();
        prop_assert_eq!(&created, &new_ids.difference(&old_ids).copied().collect());
        prop_assert_eq!(&deleted, &old_ids.difference(&new_ids).copied().collect());
        let changed: BTreeMap<Uuid, Vec<i32>> =
            delta.changed_topics.iter().map(|topic| (topic.newer.id(), topic.partitions.clone())).collect();
        prop_assert_eq!(changed.len(), delta.changed_topics.len());
        for &id in old_ids.intersection(&new_ids) {
            let expected = slowly_changed(&older, &newer, id);
            prop_assert_eq!(changed.get(&id).cloned().unwrap_or_default(), expected);
        }
        let brokers: BTreeSet<i32> = delta.changed_brokers.iter().copied().collect();
        for id in 0..9 {
            prop_assert_eq!(brokers.contains(&id), older.brokers().get(&id) != newer.brokers().get(&id));
        }
    }

    #[test]
    fn damaged_records_are_refused_or_applied_but_never_panic(seed in any::<u64>()) {
        let writer = Writer::random(seed, 60);
        let mut rng = Rng::new(seed);
        let mut image = MetadataImage::default();
        for record in &writer.records {
            let damaged = rng.damaged(record);
            if let Ok(applied) = image.apply([damaged.as_slice()]) {
                image = applied;
            }
        }
    }
}

fn slowly_changed(older: &MetadataImage, newer: &MetadataImage, id: Uuid) -> Vec<i32> {
    let of = |image: &MetadataImage, number: i32| {
        let partition = image.topics().by_id(id)?.partition(number)?;
        let directories = image.topics().directories_of(partition);
        Some((format!("{:?}", without_numbers(partition)), directories))
    };
    (0..70).filter(|&number| of(older, number) != of(newer, number)).collect()
}

fn without_numbers(partition: &crate::partition::Partition) -> impl std::fmt::Debug {
    (
        (partition.replicas().to_vec(), partition.isr().to_vec(), partition.leader(), partition.leader_epoch()),
        (partition.partition_epoch(), partition.leader_recovery_state()),
        (partition.elr().to_vec(), partition.last_known_elr().to_vec()),
        (partition.adding().to_vec(), partition.removing().to_vec()),
    )
}

const TOPIC: Uuid = Uuid([7; 16]);

fn topic() -> Record<'static> {
    TopicRecord { name: "t", topic_id: TOPIC }.into()
}

fn partition() -> Record<'static> {
    PartitionRecord {
        partition_id: 0,
        topic_id: TOPIC,
        replicas: [1, 2].as_slice().into(),
        isr: [1, 2].as_slice().into(),
        leader: 1,
        leader_epoch: 3,
        partition_epoch: 4,
        directories: [Uuid([1; 16]), Uuid([2; 16])].as_slice().into(),
        ..PartitionRecord::default()
    }
    .into()
}

fn change() -> PartitionChangeRecord<'static> {
    PartitionChangeRecord { partition_id: 0, topic_id: TOPIC, ..PartitionChangeRecord::default() }
}

#[test]
fn every_change_counts_the_partition_epoch_and_a_leader_the_leader_epoch() {
    for (leader, leader_epoch) in [(NO_LEADER_CHANGE, 3), (1, 4), (2, 4), (NO_LEADER, 4)] {
        let records = [topic(), partition(), PartitionChangeRecord { leader, ..change() }.into()];
        let image = image_with(&records).expect("valid records");
        let partition = image.topics().by_id(TOPIC).and_then(|topic| topic.partition(0)).expect("created");
        assert_eq!((partition.leader_epoch(), partition.partition_epoch()), (leader_epoch, 5), "leader {leader}");
    }
}

#[test]
fn unknown_directories_are_those_of_no_directory() {
    let record = |directories: &'static [Uuid]| {
        let Record::Partition(record) = partition() else { unreachable!() };
        Record::from(PartitionRecord { directories: directories.into(), ..record })
    };
    for directories in [&[][..], &[Uuid::ZERO, Uuid::ZERO]] {
        let image = image_with(&[topic(), record(directories)]).expect("valid records");
        let topics = image.topics();
        let partition = topics.by_id(TOPIC).and_then(|topic| topic.partition(0)).expect("created");
        assert_eq!(topics.directories_of(partition), [Uuid::ZERO, Uuid::ZERO]);
    }
    let error = image_with(&[topic(), record(&[Uuid([9; 16])])]).err().expect("one directory for two replicas");
    assert!(matches!(error, ReplayError::DirectoryCount { replicas: 2, directories: 1, .. }), "{error}");
}

#[test]
fn inconsistent_records_are_rejected() {
    let refused = |records: &[Record<'_>]| image_with(records).err().expect("it does not fit");
    assert_eq!(refused(&[partition()]), ReplayError::UnknownTopicId(TOPIC));
    assert_eq!(
        refused(&[topic(), change().into()]),
        ReplayError::UnknownPartition { topic_id: TOPIC, partition_id: 0 }
    );
    assert_eq!(refused(&[RemoveTopicRecord { topic_id: TOPIC }.into()]), ReplayError::UnknownTopicId(TOPIC));
    assert!(matches!(refused(&[topic(), topic()]), ReplayError::DuplicateTopic { .. }));
    let no_broker = UnregisterBrokerRecord { broker_id: 1, broker_epoch: 1 }.into();
    assert_eq!(refused(&[no_broker]), ReplayError::UnknownBroker(1));
    let broker = RegisterBrokerRecord { broker_id: 1, broker_epoch: 5, ..Default::default() };
    let stale = FenceBrokerRecord { id: 1, epoch: 4 };
    assert_eq!(
        refused(&[broker.into(), stale.into()]),
        ReplayError::BrokerEpoch { broker_id: 1, registered: 5, epoch: 4 }
    );
    let too_new = FeatureLevelRecord { name: "metadata.version", feature_level: 31 };
    assert_eq!(refused(&[too_new.into()]), ReplayError::MetadataVersion(31));
    assert_eq!(refused(&[EndTransactionRecord {}.into()]), ReplayError::NoTransaction);
    let begin = || Record::from(BeginTransactionRecord { name: None });
    assert_eq!(refused(&[begin(), begin()]), ReplayError::NestedTransaction);
    let no_acl = RemoveAccessControlEntryRecord { id: TOPIC };
    assert_eq!(refused(&[no_acl.into()]), ReplayError::UnknownAcl(TOPIC));
    let huge = PartitionRecord { partition_id: -1, topic_id: TOPIC, ..PartitionRecord::default() };
    assert!(matches!(refused(&[topic(), huge.into()]), ReplayError::PartitionId { .. }));
}

#[test]
fn a_large_partition_number_costs_no_more_than_a_small_one() {
    let Record::Partition(record) = partition() else { unreachable!() };
    let far = PartitionRecord { partition_id: i32::MAX, ..record };
    let image = image_with(&[topic(), far.into(), partition()]).expect("valid records");
    let topic = image.topics().by_id(TOPIC).expect("created");
    assert_eq!(topic.partitions().map(|(id, _)| id).collect::<Vec<_>>(), [0, i32::MAX]);
    assert!(topic.partition(i32::MAX).is_some() && topic.partition(i32::MAX - 1).is_none());
}

#[test]
fn a_transaction_is_withheld_until_it_ends_and_dropped_when_it_aborts() {
    let begin = BeginTransactionRecord { name: Some("test") };
    let open = image_with(&[begin.into(), topic()]).expect("valid records");
    assert!(open.in_transaction() && open.topics().len() == 1 && open.stable().topics().is_empty());
    let ended = image_with(&[begin.into(), topic(), EndTransactionRecord {}.into()]).expect("valid records");
    assert!(!ended.in_transaction() && ended.stable().topics().len() == 1);
    let aborted = image_with(&[begin.into(), topic(), AbortTransactionRecord { reason: None }.into()]);
    assert!(aborted.expect("valid records") == MetadataImage::default());
}

#[test]
fn removing_a_topic_removes_its_configuration() {
    let config = ConfigRecord { resource_type: 2, resource_name: "t", name: "k", value: Some("v") };
    let image = image_with(&[topic(), config.into()]).expect("valid records");
    assert_eq!(image.configs().value(2, "t", "k"), Some("v"));
    let image = image_with(&[topic(), config.into(), RemoveTopicRecord { topic_id: TOPIC }.into()]);
    assert_eq!(image.expect("valid records").configs().iter().count(), 0);
}

#[test]
fn kraft_version_is_no_feature_of_the_image() {
    let image = image_with(&[FeatureLevelRecord { name: "kraft.version", feature_level: 1 }.into()]);
    assert!(image.expect("it is ignored").features().is_empty());
}

#[test]
fn setting_a_broker_value_to_what_it_was_is_a_change_of_a_topic_value_not() {
    let config = |resource_type| ConfigRecord { resource_type, resource_name: "1", name: "k", value: Some("v") };
    for (resource_type, is_change) in [(2, false), (4, true)] {
        let once = image_with(&[config(resource_type).into()]).expect("valid records");
        let twice = once.apply([Record::from(config(resource_type)).encode(0).expect("valid").as_slice()]);
        let delta = Delta::between(&once, &twice.expect("valid records"));
        assert_eq!(!delta.changed_configs.is_empty(), is_change);
    }
}
