//! The rules that a simulation can leave out.

/// A rule of replication that holds in every product. The simulator leaves one out at a time, and must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A follower joins the ISR with everything that existed when the leader's epoch began (KIP-497).
    JoinFromEpochStart,
    /// The high watermark counts the maximal ISR: a proposed member, and one that is proposed to leave.
    CountMaximalIsr,
    /// An append with acks=all needs the min ISR.
    AppendWithMinIsr,
    /// Nothing is committed below the min ISR (KIP-966).
    CommitWithMinIsr,
    /// A leader that has resigned acknowledges nothing.
    FailAcks,
    /// An image that is older than what this broker knows of the partition changes nothing.
    NewerAssignment,
    /// A proposal that was refused because this broker's knowledge is old may have been committed before: it counts.
    KeepRefused,
    /// A proposal that changed nothing is withdrawn, so that another one can follow.
    WithdrawIneligible,
    /// Proposals without an answer are sent again.
    RepeatProposals,
    /// A follower joins the ISR with everything that is committed.
    JoinFromHighWatermark,
    /// A follower joins the ISR with nothing below the start of the leader's log: the leader cannot tell where that diverges.
    JoinFromLogStart,
    /// A fenced or restarted follower is not proposed (KIP-841, KIP-903).
    JoinEligible,
    /// Followers that lag are proposed to leave the ISR.
    ShrinkIsr,
    /// A new leader epoch begins without knowledge of the other replicas: they may have truncated meanwhile.
    ForgetProgress,
    /// A follower changes its log only as the leader of its epoch says.
    FollowEpoch,
    /// After a change of its role a replica is not fetched on in the role of before.
    FetchInRole,
    /// The high watermark is within the log.
    HighWatermarkInLog,
    /// A follower truncates to the end of an epoch in both logs, not only in the leader's (KIP-279).
    TruncateToOwnEnd,
    /// A follower whose log ends below its leader's log begins there.
    BeginAtLeaderStart,
    /// A follower that has no record, and is not in the ISR, begins where its leader does.
    BeginOutsideIsr,
    /// A follower's log may begin inside a batch, as its leader's does.
    BeginInsideBatch,
    /// No end offset is returned that is below what an earlier leader may have returned (KIP-207).
    OffsetNotAvailable,
    /// DeleteRecords removes only what is committed.
    DeleteCommitted,
    /// DeleteRecords waits for all live replicas.
    DeleteEverywhere,
}
