"""Messages and quorum-state as bytes: the simulator encodes and decodes each of them."""

from klamm.raft.driver import election_writer
from klamm.raft.wire import requests, responses


def a_refused_vote_is_encoded_as_granted(patch):
    """A voter has one vote per epoch (Raft 5.2); its response carries the verdict (KIP-595)."""
    made = responses.wire.VotePartitionData

    def wrong(*fields):
        return made(*fields[:-1], True)

    patch.setattr(responses.wire, "VotePartitionData", wrong)


def a_candidates_log_end_is_not_encoded(patch):
    """A vote request carries the end of the candidate's log (KIP-595)."""
    made = requests.wire.VotePartition

    def wrong(index, epoch, candidate_id, log_epoch, log_offset, *rest):
        return made(index, epoch, candidate_id, epoch, 1 << 40, *rest)

    patch.setattr(requests.wire, "VotePartition", wrong)


def quorum_state_does_not_name_the_vote(patch):
    """A voter remembers its vote after a crash (Raft 5.2; votedId of quorum-state)."""
    encode = election_writer.encode

    def forgetful(state, kraft_version, voter_ids):
        data = encode(state, kraft_version, voter_ids)
        return data if state.voted is None else data.replace(b'"votedId":%d' % state.voted.id, b'"votedId":-1')

    patch.setattr(election_writer, "encode", forgetful)
