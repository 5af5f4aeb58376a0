//! Selects the newest request version that both sides support.

use super::messages::{Request, name_of};

/// The versions of a broker: key, lowest and highest version of each API, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions(Vec<(i16, i16, i16)>);

/// Both sides support no common version of an API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it supports {} of {}, klamm's client {} to {}: another version of the broker is needed",
    .theirs.map_or("no version".to_owned(), |(min, max)| format!("versions {min} to {max}")), name_of(*.api), .ours.0, .ours.1)]
pub struct NoCommonVersion {
    api: i16,
    ours: (i16, i16),
    theirs: Option<(i16, i16)>,
}

impl Versions {
    pub fn new(mut apis: Vec<(i16, i16, i16)>) -> Self {
        apis.sort_unstable();
        Self(apis)
    }

    /// Key, lowest and highest version of each API.
    pub fn all(&self) -> impl Iterator<Item = (i16, i16, i16)> {
        self.0.iter().copied()
    }

    /// The versions of an API.
    pub fn of(&self, api: i16) -> Option<(i16, i16)> {
        let at = self.0.binary_search_by_key(&api, |served| served.0).ok()?;
        Some((self.0[at].1, self.0[at].2))
    }

    /// The newest version of a request that both sides support.
    pub fn choose<R: Request>(&self, request: &R) -> Result<i16, NoCommonVersion> {
        let ours = (R::VERSION_MIN, request.version_max());
        let theirs = self.of(R::API);
        theirs
            .map(|(min, max)| (min.max(ours.0), max.min(ours.1)))
            .and_then(|(min, max)| (min <= max).then_some(max))
            .ok_or(NoCommonVersion { api: R::API, ours, theirs })
    }
}
