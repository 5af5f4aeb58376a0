//! Applies consecutive usual partition changes of the log together.
//!
//! The data that a change reads is not in the CPU cache, each access depends on the previous one, and a zone outage
//! has thousands of changes. Therefore the data of a whole run is prefetched step by step: the processor then waits
//! for many cache lines at once. One walk stores the changed topics in the image.
use std::sync::Arc;

use smallvec::SmallVec;

use crate::counts::PartitionCounts;
use crate::hash::hash_id;
use crate::hash_index::{HashIndex, Start};
use crate::prefetch::prefetch;
use crate::records::NO_LEADER_CHANGE;
use crate::replay_error::ReplayError;
use crate::slots::{Place, Replacement, Slots};
use crate::topic::Topic;
use crate::usual_change::UsualChange;

/// The maximum number of changes that are applied together.
pub const RUN: usize = 32;

/// Consecutive changes of one topic, and the parts of that topic that are loaded so far.
struct Group<'t> {
    /// The run's changes `[start, end)`.
    start: usize,
    end: usize,
    /// The hash of the topic's id.
    hash: u32,
    entries: Start<'t>,
    place: Option<Place<'t, Topic>>,
    topic: Option<&'t Arc<Topic>>,
}

/// Applies the changes of a run; returns the changed topics by ascending slot. The error contains the index of a
/// change in the run.
pub fn apply_run(
    run: &[UsualChange<'_>],
    slots: &Slots<Topic>,
    by_id: &HashIndex,
    counts: &mut PartitionCounts,
) -> Result<SmallVec<[Replacement<Topic>; RUN]>, (usize, ReplayError)> {
    let mut changed: SmallVec<[Replacement<Topic>; RUN]> = SmallVec::new();
    for Group { start, end, place, topic, .. } in &find(run, slots, by_id) {
        let failed = |(at, error)| (start + at, error);
        let changes = &run[*start..*end];
        let (Some(place), Some(before)) = (place, topic) else {
            return Err(failed((0, ReplayError::UnknownTopicId(changes[0].topic_id))));
        };
        let slot = place.index();
        // The topics of a run are nearly always in order of slot.
        let place = match changed.last() {
            Some((last, _)) if *last >= slot => changed.binary_search_by_key(&slot, |(slot, _)| *slot),
            _ => Err(changed.len()),
        };
        match place {
            Ok(at) => {
                let topic = changed[at].1.as_mut().expect("a changed topic");
                change_topic(Arc::make_mut(topic), changes, counts).map_err(failed)?;
            }
            Err(at) => {
                let mut topic = Topic::clone(before);
                change_topic(&mut topic, changes, counts).map_err(failed)?;
                changed.insert(at, (slot, Some(Arc::new(topic))));
            }
        }
    }
    Ok(changed)
}

#[inline]
fn change_topic(
    topic: &mut Topic,
    changes: &[UsualChange<'_>],
    counts: &mut PartitionCounts,
) -> Result<(), (usize, ReplayError)> {
    for (at, record) in changes.iter().enumerate() {
        let UsualChange { topic_id, partition_id, isr, leader } = *record;
        let Some(partition) = topic.partition_mut(partition_id) else {
            return Err((at, ReplayError::UnknownPartition { topic_id, partition_id }));
        };
        let (has_isr, has_leader) = (isr.is_some(), leader != NO_LEADER_CHANGE);
        if has_leader {
            counts.subtract_leader(partition);
        }
        if has_isr {
            counts.subtract_isr(partition);
        }
        partition.merge_usual(record).map_err(|error| (at, error))?;
        if has_leader {
            counts.add_leader(partition);
        }
        if has_isr {
            counts.add_isr(partition);
        }
    }
    Ok(())
}

/// Finds the topics of a run's changes, and prefetches everything that the changes will read.
fn find<'t>(run: &[UsualChange<'_>], slots: &'t Slots<Topic>, by_id: &'t HashIndex) -> SmallVec<[Group<'t>; RUN]> {
    let mut groups: SmallVec<[Group<'t>; RUN]> = SmallVec::new();
    let mut end = 0;
    for changes in run.chunk_by(|one, two| one.topic_id == two.topic_id) {
        let start = end;
        end += changes.len();
        let hash = hash_id(changes[0].topic_id);
        let entries = by_id.start(hash);
        entries.prefetch();
        groups.push(Group { start, end, hash, entries, place: None, topic: None });
    }
    let mut near = None;
    for group in &mut groups {
        group.place = group.entries.probable(group.hash).and_then(|slot| slots.place(slot, near));
        near = group.place.or(near);
        near.iter().for_each(|place| place.prefetch());
    }
    for group in &mut groups {
        group.topic = group.place.and_then(Place::value);
        group.topic.iter().for_each(|topic| prefetch::<Topic>(topic));
    }
    for group in &mut groups {
        let id = run[group.start].topic_id;
        if group.topic.is_none_or(|topic| topic.id() != id) {
            // Another topic has the same hash, or the search continues in another chunk.
            let slot = by_id.find(group.hash, |slot| slots.get(slot).is_some_and(|topic| topic.id() == id));
            group.place = slot.and_then(|slot| slots.place(slot, None));
            group.topic = group.place.and_then(Place::value);
        }
        group.topic.iter().for_each(|topic| topic.prefetch_body());
    }
    for Group { start, end, topic, .. } in &groups {
        let Some(topic) = topic else { continue };
        run[*start..*end].iter().for_each(|record| topic.prefetch_partition(record.partition_id));
    }
    groups
}
