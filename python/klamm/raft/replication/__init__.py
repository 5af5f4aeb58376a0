"""The leader's and the follower's part: fetches, snapshots, and waiters for commits."""
