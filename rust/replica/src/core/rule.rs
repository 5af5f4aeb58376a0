//! The rules that a simulation can leave out.

/// A rule of replication that holds in every product. The simulator leaves one out at a time, and must notice (goals R3).
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
}
