//! The order of a coordinator's appends: later ones build on earlier ones, and several are in flight at a time.

use std::collections::HashMap;

use klamm_base::{ErrorCode, Uuid};

/// Appends of a coordinator's shard, each of which builds on those before it. After a refused append the shard begins
/// another series with the state before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// The leader epoch in which the shard was loaded: it does not know what other leaders have appended since.
    pub leader_epoch: i32,
    /// Differs from those of all other series of the partition.
    pub number: u64,
}

/// The series that ended with a refused append, the last one of each partition.
#[derive(Default)]
pub struct EndedSeries(HashMap<(Uuid, i32), u64>);

impl EndedSeries {
    /// Appends, unless an earlier append of the series was refused: then with OPERATION_NOT_ATTEMPTED.
    pub fn append<T>(
        &mut self,
        partition: (Uuid, i32),
        series: Option<Series>,
        append: impl FnOnce() -> Result<T, ErrorCode>,
    ) -> Result<T, ErrorCode> {
        let Some(series) = series else { return append() };
        if self.0.get(&partition) == Some(&series.number) {
            return Err(ErrorCode::OPERATION_NOT_ATTEMPTED);
        }
        append().inspect_err(|_| {
            self.0.insert(partition, series.number);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_append_ends_its_series_alone() {
        let (mut ended, partition, other) = (EndedSeries::default(), (Uuid::ZERO, 0), (Uuid::ZERO, 1));
        let series = |number| Some(Series { leader_epoch: 1, number });
        let refused = Err::<(), _>(ErrorCode::NOT_ENOUGH_REPLICAS);
        assert_eq!(ended.append(partition, series(1), || Ok(())), Ok(()));
        assert_eq!(ended.append(partition, series(1), || refused), refused);
        for _ in 0..2 {
            let later = ended.append(partition, series(1), || -> Result<(), _> { unreachable!("it is not attempted") });
            assert_eq!(later, Err(ErrorCode::OPERATION_NOT_ATTEMPTED));
        }
        assert_eq!(ended.append(other, series(1), || Ok(())), Ok(()));
        assert_eq!(ended.append(partition, None, || refused), refused);
        assert_eq!(ended.append(partition, series(2), || Ok(())), Ok(()));
        assert_eq!(ended.append(partition, series(2), || Ok(())), Ok(()));
    }
}
