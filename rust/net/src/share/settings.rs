//! The configs of a share group: its own values within the bounds of the node's, read from the image at each use.

use klamm_metadata::MetadataImage;
use klamm_share::Limits;

/// Type of a group resource in the image's configs.
const GROUP_RESOURCE: i8 = 32;
const MS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// The node's default for a config of groups, and the bounds of the values that a group may set.
#[derive(Clone, Copy, Debug)]
pub struct Bounded {
    pub default: i64,
    pub min: i64,
    pub max: i64,
}

impl Bounded {
    fn of(self, own: Option<&str>) -> i64 {
        let own = own.and_then(|text| text.parse::<i64>().ok());
        own.map_or(self.default, |value| value.clamp(self.min, self.max.max(self.min)))
    }
}

/// The node's configs of share groups (`ShareGroupConfig`).
#[derive(Clone, Debug)]
pub struct ShareConfig {
    /// `group.share.max.share.sessions`.
    pub sessions_max: usize,
    /// `group.share.partition.max.record.locks` and its bounds.
    pub record_locks: Bounded,
    /// `group.share.delivery.count.limit` and its bounds.
    pub delivery_count: Bounded,
    /// `group.share.record.lock.duration.ms` and its bounds.
    pub lock_duration_ms: Bounded,
}

impl Default for ShareConfig {
    fn default() -> Self {
        Self {
            sessions_max: 2000,
            record_locks: Bounded { default: 2000, min: 100, max: 4000 },
            delivery_count: Bounded { default: 5, min: 2, max: 10 },
            lock_duration_ms: Bounded { default: 30_000, min: 15_000, max: 60_000 },
        }
    }
}

/// Where a share partition without a start offset begins (`share.auto.offset.reset`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetReset {
    Latest,
    Earliest,
    /// The first record of the last this many ms.
    ByDuration(i64),
}

/// The configs that apply to a group now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    pub limits: Limits,
    /// `share.isolation.level`.
    pub reads_committed: bool,
    pub offset_reset: OffsetReset,
}

impl GroupSettings {
    pub fn of(config: &ShareConfig, image: &MetadataImage, group: &str) -> Self {
        let own = image.configs().get(GROUP_RESOURCE, group);
        let value = |key: &str| own.and_then(|own| own.get(key));
        let delivery_count = config.delivery_count.of(value("share.delivery.count.limit"));
        Self {
            limits: Limits {
                record_locks_max: config.record_locks.of(value("share.partition.max.record.locks")),
                delivery_count: u16::try_from(delivery_count).unwrap_or(u16::MAX),
                lock_duration_ms: config.lock_duration_ms.of(value("share.record.lock.duration.ms")),
                is_renew_enabled: value("share.renew.acknowledge.enable").is_none_or(|text| text == "true"),
            },
            reads_committed: value("share.isolation.level") == Some("read_committed"),
            offset_reset: offset_reset(value("share.auto.offset.reset")),
        }
    }
}

/// A group's value was checked when it was set.
fn offset_reset(text: Option<&str>) -> OffsetReset {
    match text.and_then(|text| text.split_once(':')) {
        Some(("by_duration", duration)) => duration_ms(duration).map_or(OffsetReset::Latest, OffsetReset::ByDuration),
        _ if text == Some("earliest") => OffsetReset::Earliest,
        _ => OffsetReset::Latest,
    }
}

/// The milliseconds of an ISO 8601 duration `PnDTnHnMn.nS`.
fn duration_ms(text: &str) -> Option<i64> {
    let text = text.to_ascii_uppercase();
    let text = text.strip_prefix('P')?;
    let (days, time) = text.split_once('T').unwrap_or((text, ""));
    let mut total = match days.strip_suffix('D') {
        Some(days) => days.parse::<i64>().ok()?.checked_mul(MS_PER_DAY)?,
        None => 0,
    };
    let mut rest = time;
    for (unit, ms) in [('H', 3_600_000), ('M', 60_000)] {
        if let Some((number, after)) = rest.split_once(unit) {
            total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(ms)?)?;
            rest = after;
        }
    }
    if let Some(seconds) = rest.strip_suffix('S') {
        let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let fraction = format!("{fraction:0<3}");
        total = total.checked_add(whole.parse::<i64>().ok()?.checked_mul(1000)?)?;
        total = total.checked_add(fraction.get(..3)?.parse().ok()?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_days_and_fractions() {
        for (text, ms) in [
            ("P2D", 2 * MS_PER_DAY),
            ("PT1H", 3_600_000),
            ("P1DT1M", MS_PER_DAY + 60_000),
            ("PT1H2M3.25S", 3_723_250),
            ("pt0.5s", 500),
        ] {
            assert_eq!(duration_ms(text), Some(ms), "{text}");
        }
        assert_eq!(offset_reset(Some("by_duration:PT1H")), OffsetReset::ByDuration(3_600_000));
        assert_eq!(offset_reset(Some("earliest")), OffsetReset::Earliest);
        assert_eq!((offset_reset(Some("latest")), offset_reset(None)), (OffsetReset::Latest, OffsetReset::Latest));
    }

    #[test]
    fn a_value_of_a_group_stays_within_the_bounds_of_the_node() {
        let bounded = Bounded { default: 5, min: 2, max: 10 };
        let values = [None, Some("1"), Some("7"), Some("11")].map(|text| bounded.of(text));
        assert_eq!(values, [5, 2, 7, 10]);
    }
}
