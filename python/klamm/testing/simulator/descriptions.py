"""Text for messages and effects, for traces and scenarios."""

from typing import assert_never

from klamm.raft import effects as fx
from klamm.raft.election.election_state import ElectionState
from klamm.raft.log.control_records import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    decode_kraft_version,
    decode_voters,
)
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EpochResponse,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    Request,
    Response,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VotersInLog
from klamm.testing.simulator.envelope import Envelope
from klamm.testing.simulator.memory_log import DATA, Record, decode
from klamm.testing.simulator.replica_data import PORT
from klamm.testing.simulator.simulated_replica import SimulatedReplica


def of_envelope(envelope: Envelope) -> str:
    """`1 -> 2 Vote …`, or `2 -> 1 Vote: …` for an answer."""
    route = f"{envelope.source} -> {envelope.target}"
    if envelope.response is None:
        return f"{route} {of_request(envelope.request)}"
    return f"{route} {of_response(envelope.request, envelope.response)}"


def name_of(envelope: Envelope) -> str:
    """`Vote`, of the request or its answer."""
    return of_request(envelope.request).split()[0]


def of_request(request: Request) -> str:
    """A request."""
    match request:
        case VoteRequest():
            return f"{_vote_name(request)} epoch={request.epoch} log={of_end(request.log_end)}"
        case BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch epoch={request.epoch}"
        case EndQuorumEpochRequest():
            candidates = ",".join(str(key.id) for key in request.preferred_candidates) or "-"
            return f"EndQuorumEpoch epoch={request.epoch} successors={candidates}"
        case FetchRequest():
            position = of_end(OffsetAndEpoch(request.fetch_offset, request.last_fetched_epoch))
            return f"Fetch epoch={request.epoch} log={position} hw={_known(request.high_watermark)}"
        case FetchSnapshotRequest():
            return f"FetchSnapshot epoch={request.epoch} id={of_end(request.snapshot_id)} position={request.position}"
        case AddVoterRequest():
            return f"AddRaftVoter {of_key(request.voter)}"
        case RemoveVoterRequest():
            return f"RemoveRaftVoter {of_key(request.voter)}"
        case UpdateVoterRequest():
            return f"UpdateRaftVoter {of_key(request.voter)} epoch={request.epoch} {_where(request.endpoints)}"
        case ApiVersionsRequest():
            return "ApiVersions"
        case _:
            assert_never(request)


def of_response(request: Request, response: Response) -> str:
    """An answer, with what was asked."""
    match response:
        case AddVoterResponse():
            return f"AddRaftVoter: {_verdict(response)}"
        case RemoveVoterResponse():
            return f"RemoveRaftVoter: {_verdict(response)}"
        case ApiVersionsResponse():
            low, high = response.kraft_versions or (0, 0)
            return f"ApiVersions: kraft.version {low} to {high}"
        case _:
            return _of_epoch_response(request, response)


def _of_epoch_response(request: Request, response: EpochResponse) -> str:
    leader = "none" if response.leader_id is None else str(response.leader_id)
    head = f"epoch={response.epoch} leader={leader}"
    error = "" if response.error is Error.NONE else f" {response.error.name}"
    match response:
        case VoteResponse():
            verdict = "granted" if response.granted else "refused"
            name = _vote_name(request) if isinstance(request, VoteRequest) else "Vote"
            return f"{name}: {verdict} {head}{error}"
        case BeginQuorumEpochResponse():
            return f"BeginQuorumEpoch: {head}{error}"
        case EndQuorumEpochResponse():
            return f"EndQuorumEpoch: {head}{error}"
        case FetchResponse():
            return f"Fetch: {head}{error}{_fetched(response)}"
        case FetchSnapshotResponse():
            return f"FetchSnapshot: {head}{error}{_slice(response)}"
        case UpdateVoterResponse():
            return f"UpdateRaftVoter: {head}{error}"
        case _:
            assert_never(response)


def of_effect(effect: fx.Effect) -> str:
    """An effect other than a message."""
    match effect:
        case fx.PersistElection():
            return f"write quorum-state #{effect.ticket}: {of_election(effect.state)}"
        case fx.AppendControl(epoch, records):
            names = ", ".join(of_control(kind, value) for kind, value in records)
            return f"append {names} of epoch {epoch}"
        case fx.AppendFetched(batches, _):
            return f"append {sum(map(len, decode(batches)))} fetched record(s)"
        case fx.TruncateLog(offset):
            return f"truncate the log to {offset}"
        case fx.AppendSnapshotSlice(snapshot_id, position, data):
            return f"keep bytes {position}..{position + len(data)} of snapshot {of_end(snapshot_id)}"
        case fx.CheckSnapshot(snapshot_id, attempt):
            return f"check snapshot {of_end(snapshot_id)} #{attempt}"
        case fx.InstallSnapshot(snapshot_id):
            return f"install snapshot {of_end(snapshot_id)}"
        case fx.DropSnapshot():
            return "drop the snapshot that was being fetched"
        case fx.SendRequest():
            return f"send to {effect.to}: {of_request(effect.request)}"
        case fx.Reply():
            return "reply"
        case fx.HighWatermarkAdvanced(offset):
            return f"high watermark {offset}"
        case fx.VotersChanged(voters):
            return f"voters are {of_voters(voters)}"
        case fx.LeaderChanged(leader_id, epoch):
            return f"leader of epoch {epoch} is {'unknown' if leader_id is None else leader_id}"
        case fx.BecameLeader(epoch):
            return f"leads epoch {epoch}"
        case fx.LostLeadership(epoch):
            return f"no longer leads epoch {epoch}"
        case fx.ShutdownCompleted():
            return "may stop"
        case _:
            assert_never(effect)


def of_state(replica: SimulatedReplica) -> str:
    """One line on a replica."""
    log = f"log={of_end(OffsetAndEpoch(replica.log.end_offset, replica.log.last_epoch))}"
    log += f" flushed={replica.log.flushed_offset}"
    if replica.core is None:
        stored = "nothing" if replica.stored is None else of_election(replica.stored)
        return f"{replica.id}: down, stored {stored}, {log}"
    core = replica.core.replica
    return f"{replica.id}: {core.role.value} {of_election(core.election)} {log} hw={_known(core.high_watermark)}"


def of_election(election: ElectionState) -> str:
    """An election state."""
    leader = "none" if election.leader_id is None else str(election.leader_id)
    voted = "none" if election.voted is None else str(election.voted.id)
    return f"epoch={election.epoch} leader={leader} voted={voted}"


def of_voters(known: VotersInLog) -> str:
    """The voters by node id, each with its directory where that is known."""
    shown = [of_voter(voter) for voter in known.voters.voters]
    return f"{' '.join(shown) or 'none'}, kraft.version {known.kraft_version}"


def of_voter(voter: Voter) -> str:
    """`3-A`, with the port when it is not the first that a simulated replica has."""
    moved = [f":{endpoint.port}" for endpoint in voter.endpoints if endpoint.port != PORT]
    return of_key(voter.key) + "".join(moved)


def of_key(key: ReplicaKey) -> str:
    """`3`, or `3-A` with the first letter of its directory id."""
    return str(key.id) if key.directory_id is None else f"{key.id}-{chr(key.directory_id[0])}"


def of_end(end: OffsetAndEpoch) -> str:
    """The end of a log as `offset@epoch`."""
    return f"{end.offset}@{end.epoch}"


def of_record(record: Record) -> str:
    """A record of the log."""
    if record.type == DATA:
        return record.value.decode(errors="replace")
    return of_control(record.type, record.value)


def of_control(kind: int, value: bytes) -> str:
    """A control record."""
    if kind == KRAFT_VOTERS:
        return f"KRaftVoters({' '.join(of_voter(voter) for voter in decode_voters(value).voters)})"
    if kind == KRAFT_VERSION:
        return f"KRaftVersion({decode_kraft_version(value)})"
    return "LeaderChange" if kind == LEADER_CHANGE else f"control {kind}"


def _verdict(response: AddVoterResponse | RemoveVoterResponse) -> str:
    return response.error.name if response.message is None else f"{response.error.name} ({response.message})"


def _where(endpoints: tuple[Endpoint, ...]) -> str:
    return ",".join(f"{one.host}:{one.port}" for one in endpoints) or "nowhere"


def _vote_name(request: VoteRequest) -> str:
    return "PreVote" if request.pre_vote else "Vote"


def _known(offset: int) -> str:
    return "?" if offset < 0 else str(offset)


def _fetched(response: FetchResponse) -> str:
    if response.diverging is not None:
        return f" diverging={of_end(response.diverging)}"
    if response.snapshot_id is not None:
        return f" snapshot={of_end(response.snapshot_id)}"
    count = sum(map(len, decode(response.records)))
    return f" hw={_known(response.high_watermark)} records={count}" if response.error is Error.NONE else ""


def _slice(response: FetchSnapshotResponse) -> str:
    if response.error is not Error.NONE:
        return ""
    end = response.position + len(response.unaligned_records)
    return f" id={of_end(response.snapshot_id)} bytes={response.position}..{end} of {response.size}"
