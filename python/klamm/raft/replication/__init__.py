"""The leader's and the follower's part: fetches, snapshots, and who waits for a commit."""
