//! The guards that a simulated broker can lack, so that the simulator proves that it notices.

use klamm_fetcher::core::SessionRule as FollowerRule;
use klamm_net::SessionRule as LeaderRule;
use klamm_replica::Rule;

/// What a broker does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A rule of the replication state.
    Core(Rule),
    /// A rule of fetch sessions, on the leader's side and on the follower's.
    LeaderSession(LeaderRule),
    FollowerSession(FollowerRule),
    /// Compaction ends at the high watermark.
    CleanCommitted,
    /// A cleaned segment is durable before it replaces others.
    SyncCleaned,
    /// A gap in a compacted log that klamm alone has written is a loss, unless the cleaner left it.
    GapsAreLosses,
    /// A start knows how far a damaged log was flushed.
    ProvenEnds,
    /// A leader compares the leader epoch of a fetch with its own (KIP-320).
    FetchEpoch,
    /// A leader refuses fetches of a follower's earlier life (KIP-903).
    FollowerEpoch,
    /// A leader finds where a follower's log diverges (KIP-595).
    Divergence,
    /// A follower flushes before it fetches on.
    FollowerFlush,
    /// Leaders and followers count what they have flushed.
    Flush,
    /// Consumers read up to the high watermark.
    ConsumerLimit,
    /// A transaction begins only with the guard of its verification (KIP-890).
    VerifiedTransactions,
    /// A marker of transaction.version 2 does not end a transaction of its own epoch (KIP-1228).
    MarkerEpoch,
    /// After a refused append of a coordinator's shard, none that builds on it is attempted.
    AppendInSeries,
    /// A coordinator's shard appends in the leader epoch in which it was loaded.
    AppendInEpoch,
    /// Share groups read up to the high watermark.
    ShareLimit,
    /// A record of a share group is delivered a limited number of times (KIP-932).
    DeliveryLimit,
    /// A member of a share group holds what it has acquired, until its lock ends (KIP-932).
    HoldLocks,
    ExpireLocks,
    /// Consumers of committed records read up to the last stable offset, and skip aborted transactions.
    StableOffset,
    AbortedTransactions,
}

/// All guards, by the names that a simulation uses.
const GUARDS: [(&str, Guard); 49] = [
    ("join-from-epoch-start", Guard::Core(Rule::JoinFromEpochStart)),
    ("count-maximal-isr", Guard::Core(Rule::CountMaximalIsr)),
    ("append-with-min-isr", Guard::Core(Rule::AppendWithMinIsr)),
    ("commit-with-min-isr", Guard::Core(Rule::CommitWithMinIsr)),
    ("fail-acks", Guard::Core(Rule::FailAcks)),
    ("newer-assignment", Guard::Core(Rule::NewerAssignment)),
    ("keep-refused", Guard::Core(Rule::KeepRefused)),
    ("withdraw-ineligible", Guard::Core(Rule::WithdrawIneligible)),
    ("repeat-proposals", Guard::Core(Rule::RepeatProposals)),
    ("join-from-high-watermark", Guard::Core(Rule::JoinFromHighWatermark)),
    ("join-from-log-start", Guard::Core(Rule::JoinFromLogStart)),
    ("join-eligible", Guard::Core(Rule::JoinEligible)),
    ("shrink-isr", Guard::Core(Rule::ShrinkIsr)),
    ("forget-progress", Guard::Core(Rule::ForgetProgress)),
    ("follow-epoch", Guard::Core(Rule::FollowEpoch)),
    ("fetch-in-role", Guard::Core(Rule::FetchInRole)),
    ("high-watermark-in-log", Guard::Core(Rule::HighWatermarkInLog)),
    ("truncate-to-own-end", Guard::Core(Rule::TruncateToOwnEnd)),
    ("begin-at-leader-start", Guard::Core(Rule::BeginAtLeaderStart)),
    ("begin-outside-isr", Guard::Core(Rule::BeginOutsideIsr)),
    ("begin-inside-batch", Guard::Core(Rule::BeginInsideBatch)),
    ("offset-not-available", Guard::Core(Rule::OffsetNotAvailable)),
    ("delete-committed", Guard::Core(Rule::DeleteCommitted)),
    ("delete-everywhere", Guard::Core(Rule::DeleteEverywhere)),
    ("session-epoch", Guard::LeaderSession(LeaderRule::CheckEpoch)),
    ("session-forget", Guard::LeaderSession(LeaderRule::Forget)),
    ("new-session", Guard::FollowerSession(FollowerRule::NewSession)),
    ("name-forgotten", Guard::FollowerSession(FollowerRule::NameForgotten)),
    ("keep-named", Guard::FollowerSession(FollowerRule::KeepNamed)),
    ("clean-committed", Guard::CleanCommitted),
    ("sync-cleaned", Guard::SyncCleaned),
    ("gaps-are-losses", Guard::GapsAreLosses),
    ("proven-ends", Guard::ProvenEnds),
    ("fetch-epoch", Guard::FetchEpoch),
    ("follower-epoch", Guard::FollowerEpoch),
    ("divergence", Guard::Divergence),
    ("follower-flush", Guard::FollowerFlush),
    ("flush", Guard::Flush),
    ("consumer-limit", Guard::ConsumerLimit),
    ("verified-transactions", Guard::VerifiedTransactions),
    ("marker-epoch", Guard::MarkerEpoch),
    ("append-in-series", Guard::AppendInSeries),
    ("append-in-epoch", Guard::AppendInEpoch),
    ("stable-offset", Guard::StableOffset),
    ("aborted-transactions", Guard::AbortedTransactions),
    ("share-limit", Guard::ShareLimit),
    ("delivery-limit", Guard::DeliveryLimit),
    ("hold-locks", Guard::HoldLocks),
    ("expire-locks", Guard::ExpireLocks),
];

impl Guard {
    /// The guard of this name.
    pub fn named(name: &str) -> Option<Self> {
        GUARDS.iter().find(|(known, _)| *known == name).map(|(_, guard)| *guard)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        GUARDS.iter().map(|(name, _)| *name)
    }

    pub(super) fn rule(self) -> Option<Rule> {
        if let Self::Core(rule) = self { Some(rule) } else { None }
    }

    pub(super) fn leader_session_rule(self) -> Option<LeaderRule> {
        if let Self::LeaderSession(rule) = self { Some(rule) } else { None }
    }

    pub(super) fn follower_session_rule(self) -> Option<FollowerRule> {
        if let Self::FollowerSession(rule) = self { Some(rule) } else { None }
    }
}
