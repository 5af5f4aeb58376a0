use klamm_base::{ErrorCode, Uuid};

use super::cluster::{ClusterView, NoLeader};
use super::messages::metadata::{BrokerAddress, MetadataAnswer, PartitionMetadata, TopicMetadata};

const ID: Uuid = Uuid([7; 16]);

fn metadata(id: Uuid, leader: i32, leader_epoch: i32) -> MetadataAnswer {
    let broker = |id: i32, host: &str| BrokerAddress { id, host: host.to_owned(), port: 9092 };
    let partition = PartitionMetadata { error: ErrorCode::NONE, index: 0, leader, leader_epoch };
    MetadataAnswer {
        brokers: vec![broker(1, "one"), broker(2, "::1")],
        topics: vec![TopicMetadata {
            error: ErrorCode::NONE,
            name: "t".to_owned(),
            id,
            is_internal: false,
            partitions: vec![partition],
        }],
        ..MetadataAnswer::default()
    }
}

fn leader_of(view: &ClusterView) -> Result<(String, i32), NoLeader> {
    view.leader("t", 0).map(|leader| (leader.address, leader.epoch))
}

#[test]
fn older_metadata_does_not_replace_a_newer_leader() {
    let mut view = ClusterView::default();
    assert_eq!(leader_of(&view), Err(NoLeader::Unknown));
    view.on_metadata(&metadata(ID, 2, 5));
    view.on_metadata(&metadata(ID, 1, 4));
    assert_eq!(leader_of(&view), Ok(("[::1]:9092".to_owned(), 5)));
    view.on_metadata(&metadata(ID, 1, 6));
    assert_eq!(leader_of(&view), Ok(("one:9092".to_owned(), 6)));
    view.on_metadata(&metadata(Uuid([8; 16]), 2, 0));
    assert_eq!(leader_of(&view), Ok(("[::1]:9092".to_owned(), 0)), "a recreated topic begins at epoch 0");
}

#[test]
fn a_distrusted_topic_is_fetched_again() {
    let mut view = ClusterView::default();
    view.on_metadata(&metadata(ID, 1, 0));
    view.distrust("t");
    assert_eq!(leader_of(&view), Err(NoLeader::Unknown));
    assert_eq!(view.partitions("t"), None);
    assert!(view.knows("t", Some(0)) && !view.knows("t", Some(1)) && !view.knows("u", None));
    view.on_metadata(&metadata(ID, 1, 0));
    assert_eq!(view.partitions("t"), Some(vec![0]));
    assert_eq!(view.leader("t", 3), Err(NoLeader::NoSuchPartition { count: 1 }));
    view.on_metadata(&metadata(ID, -1, 1));
    assert_eq!(leader_of(&view), Err(NoLeader::Leaderless));
    view.on_metadata(&metadata(ID, 9, 2));
    assert_eq!(leader_of(&view), Err(NoLeader::Leaderless), "a leader that is no broker of the cluster");
}
