"""A test for each finding: the facts, the message, and that healthy facts have no finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.admin.quorum import Member, Quorum
from klamm.cli.doctor.diagnosis import CHECKS, diagnose
from klamm.cli.doctor.facts import ContactedAddress, Directory, Facts, NodeConfigFacts, Refusal
from klamm.cli.doctor.findings import Finding, Severity
from klamm.cli.doctor.inspection import look
from klamm.cli.main import run
from klamm.formats.meta_properties import MetaProperties
from klamm.protocol.messages.voter_messages import VoterListener
from klamm.raft.election.election_state import ElectionState
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.voters.voter_set import VoterSet

NOW = 1_700_000_000_000
CLUSTER = "c" * 22
ADDRESSES = {one: (f"host{one}", 9093) for one in (1, 2, 3)}


def directory_id(node_id: int) -> bytes:
    return bytes([node_id]) * 16


def member(node_id: int, **changed: Any) -> Member:
    host, port = ADDRESSES.get(node_id, ("elsewhere", 1))
    values = {
        "directory_id": directory_id(node_id),
        "is_voter": True,
        "endpoints": (VoterListener("CONTROLLER", host, port),),
        "log_end_offset": 100,
        "last_fetch_ms": NOW,
        "last_caught_up_ms": NOW,
    }
    return Member(node_id=node_id, **{**values, **changed})


def quorum(*members: Member) -> Quorum:
    return Quorum(CLUSTER, 1, 7, 100, members or tuple(map(member, (1, 2, 3))))


def contact(node_id: int, **changed: Any) -> ContactedAddress:
    found = ContactedAddress(ADDRESSES[node_id], node_id, cluster_id=CLUSTER, leader_id=1, epochs=(7,), asked_at_ms=NOW)
    return found._replace(**changed)


def led(*members: Member, **changed: Any) -> Facts:
    leader = contact(1, quorum=quorum(*members))
    return Facts((leader, contact(2), contact(3)), (), NOW)._replace(**changed)


def leaderless(*contacts: ContactedAddress, **changed: Any) -> Facts:
    config = NodeConfigFacts(Path("server.properties"), 1, True, ADDRESSES, (), ())
    directory = node(1, config=config, voters=VoterSet.of_ids(ADDRESSES))
    found = contacts or tuple(contact(one, leader_id=None) for one in ADDRESSES)
    return Facts(found, (directory,), NOW)._replace(**changed)


def node(node_id: int, **changed: Any) -> Directory:
    found = Directory(
        Path(f"/data/{node_id}"),
        meta=MetaProperties(CLUSTER, node_id, directory_id(node_id)),
        election=ElectionState(7, 1),
        end=OffsetAndEpoch(100, 7),
        last_time_ms=NOW - 1000,
        free_bytes=50 << 30,
        total_bytes=100 << 30,
    )
    return found._replace(**changed)


def named(facts: Facts) -> dict[str, Finding]:
    return {finding.name: finding for finding in diagnose(facts)}


def only(facts: Facts, name: str) -> Finding:
    found = diagnose(facts)
    assert [finding.name for finding in found] == [name]
    assert found[0].advice
    return found[0]


def test_good_facts_have_no_findings() -> None:
    assert diagnose(led()) == []
    assert diagnose(led(directories=tuple(map(node, (1, 2, 3))))) == []
    assert diagnose(Facts((), (node(1),), NOW)) == []
    assert diagnose(Facts((), (), NOW)) == []


@pytest.mark.parametrize("refusal", Refusal)
def test_an_unreachable_voter(refusal: Refusal) -> None:
    gone = contact(3, refusal=refusal, detail="why", cluster_id=None, leader_id=None, epochs=())
    finding = only(led(contacts=(contact(1, quorum=quorum()), contact(2), gone)), "unreachable-voter")
    assert finding.text == f"voter 3 at host3:9093: {refusal.value} (why)"
    nobody = gone._replace(voter_id=None)
    assert only(led(contacts=(contact(1, quorum=quorum()), nobody)), "unreachable").text.startswith("host3:9093: ")


def test_a_lost_majority() -> None:
    gone = [contact(one, refusal=Refusal.REFUSED, cluster_id=None, leader_id=None, epochs=()) for one in (2, 3)]
    found = diagnose(leaderless(contact(1, leader_id=None), *gone))
    assert found[0].name == "majority-lost"
    assert found[0].text == "1 of 3 voters respond, 2 are needed to elect a leader; missing: 2, 3"
    assert "klamm quorum recover" in found[0].advice
    running = leaderless(contact(1, leader_id=None), gone[0], directories=(node(3, is_running=True),))
    running = running._replace(directories=(node(3, is_running=True, voters=VoterSet.of_ids(ADDRESSES)),))
    assert "majority-lost" not in named(running)
    assert diagnose(Facts((), (node(1, voters=VoterSet.of_ids(ADDRESSES)),), NOW)) == []


def test_a_voter_that_rejects_this_client_is_not_considered_down() -> None:
    strangers = [contact(one, refusal=Refusal.NOT_TRUSTED, cluster_id=None, leader_id=None) for one in ADDRESSES]
    assert {finding.name for finding in diagnose(leaderless(*strangers))} == {"unreachable-voter"}


def test_a_majority_without_a_leader() -> None:
    assert only(leaderless(), "no-leader").text.startswith("1, 2, 3 of the voters 1, 2, 3 respond")


def test_clusters_that_differ() -> None:
    other = contact(2, cluster_id="d" * 22)
    finding = only(led(contacts=(contact(1, quorum=quorum()), other)), "cluster-ids-differ")
    assert "voter 2 at host2:9093" in finding.text
    meta = MetaProperties("d" * 22, 1, directory_id(1))
    assert "/data/1" in only(led(directories=(node(1, meta=meta),)), "cluster-ids-differ").text


def test_node_ids() -> None:
    config = NodeConfigFacts(Path("server.properties"), 2, True, {}, (), ())
    finding = only(led(directories=(node(1, config=config),)), "node-id-differs")
    assert finding.text == "server.properties has node.id=2, but /data/1 belongs to node 1"
    twin = node(1, path=Path("/copy"), meta=MetaProperties(CLUSTER, 1, None))
    assert only(led(directories=(node(1), twin)), "node-id-twice").text == "/data/1 and /copy both belong to node 1"


def test_directory_ids() -> None:
    new_disk = node(2, meta=MetaProperties(CLUSTER, 2, b"n" * 16))
    finding = only(led(directories=(new_disk,)), "directory-id-differs")
    assert finding.text.startswith(
        "voter 2 has directory id AgICAgICAgICAgICAgICAg, but /data/2 has bm5ubm5ubm5ubm5ubm5ubg"
    )
    copy = node(3, meta=MetaProperties(CLUSTER, 3, directory_id(1)))
    found = named(led(directories=(node(1), copy)))
    assert found["directory-id-twice"].text.startswith("/data/1 and /data/3 have the same directory.id")


def test_voters_of_configurations() -> None:
    one = NodeConfigFacts(Path("1.properties"), 1, True, ADDRESSES, (), ())
    two = NodeConfigFacts(Path("2.properties"), 2, True, {1: ADDRESSES[1], 2: ADDRESSES[2]}, (), ())
    directories = node(1, config=one), node(2, config=two)
    assert "2.properties differs from that of 1.properties" in only(led(directories=directories), "voters-differ").text
    observer = NodeConfigFacts(Path("9.properties"), 9, True, {}, (), ())
    finding = only(led(directories=(node(9, config=observer),)), "not-a-voter")
    assert (finding.severity, "controller 9 is no voter" in finding.text) == (Severity.WARNING, True)
    broker = observer._replace(is_controller=False)
    assert diagnose(led(directories=(node(9, config=broker),))) == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "127.8.8.8"])
def test_a_voter_that_advertises_localhost(host: str) -> None:
    local = member(2, endpoints=(VoterListener("CONTROLLER", host, 9093),))
    finding = only(led(member(1), local, member(3)), "advertises-localhost")
    assert finding.text.startswith(f"voter 2 has the endpoint {host}:9093")
    everybody = [member(one, endpoints=(VoterListener("CONTROLLER", host, 9090 + one),)) for one in ADDRESSES]
    assert diagnose(led(*everybody)) == [], "all on one machine"


def test_a_voter_without_an_address() -> None:
    nowhere = member(2, endpoints=(VoterListener("CONTROLLER", "0.0.0.0", 9093),))
    assert only(led(member(1), nowhere, member(3)), "open-address").severity is Severity.ERROR


def test_leaders_that_differ() -> None:
    leader = contact(1, quorum=quorum())
    finding = only(led(contacts=(leader, contact(2, leader_id=3, epochs=(6,)), contact(3))), "old-leader")
    assert "voter 2 at host2:9093 still has 3 as the leader, of epoch 6; 1 leads epoch 7" in finding.text
    finding = only(led(contacts=(leader, contact(2, leader_id=3), contact(3))), "two-leaders")
    assert finding.severity is Severity.ERROR


def test_epochs_that_race() -> None:
    racing = [contact(one, leader_id=None, epochs=(40 + one, 44 + one)) for one in ADDRESSES]
    found = named(leaderless(*racing))
    assert "went from epoch 41 to 45" in found["epochs-race"].text
    assert diagnose(led(contacts=(contact(1, quorum=quorum(), epochs=(6, 7)), contact(2)))) == []
    vain = node(1, election=ElectionState(30), end=OffsetAndEpoch(100, 7))
    finding = only(led(directories=(vain,)), "epochs-in-vain")
    assert "has seen epoch 30, but its log ends in epoch 7: 23 elections" in finding.text
    assert diagnose(led(directories=(vain._replace(election=ElectionState(8)),))) == []


def test_followers() -> None:
    silent = member(3, last_fetch_ms=NOW - 40_000, log_end_offset=60)
    finding = only(led(member(1), member(2), silent), "silent-voter")
    assert finding.text == "voter 3 last fetched from leader 1 40 s ago; it lacks 40 records"
    never = member(3, last_fetch_ms=-1, log_end_offset=-1)
    assert "has never fetched" in only(led(member(1), member(2), never), "silent-voter").text
    behind = member(3, last_caught_up_ms=NOW - 30_000, log_end_offset=10)
    finding = only(led(member(1), member(2), behind), "lagging-voter")
    assert (finding.severity, finding.text) == (Severity.WARNING, "voter 3 is 90 records behind leader 1, for 30 s")


def test_logs_of_different_length_matter_without_a_leader() -> None:
    directories = node(1), node(2, end=OffsetAndEpoch(400, 6))
    finding = only(Facts((), directories, NOW), "shorter-log")
    assert (
        "the log of node 2 (/data/2) ends at 400 in epoch 6, that of node 1 (/data/1) at 100 in epoch 7" in finding.text
    )
    assert diagnose(led(directories=directories)) == []


def test_files_that_cannot_be_read() -> None:
    broken = node(1, problems=("/data/1/__cluster_metadata-0/quorum-state: not a JSON object",))
    finding = only(led(directories=(broken,)), "quorum-state-unreadable")
    assert "klamm quorum recover" in finding.advice
    assert only(led(directories=(node(1, problems=("x is damaged",)),)), "unreadable").text.endswith("x is damaged")


def test_disks() -> None:
    def disk(name: str, **changed: Any) -> Finding:
        return only(led(directories=(node(1, **changed),)), name)

    assert disk("disk-full", free_bytes=10 << 20).severity is Severity.ERROR
    assert disk("disk-nearly-full", free_bytes=500 << 20).text == "the disk of node 1 (/data/1) has 500 MiB left, 0 %"
    assert disk("disk-read-only", is_writable=False).severity is Severity.ERROR
    assert "took 250 ms" in disk("disk-slow", fsync_ms=250.4).text
    assert diagnose(led(directories=(node(1, fsync_ms=8.0),))) == []


def test_clocks() -> None:
    ahead = [member(one, last_fetch_ms=NOW + 90_000, last_caught_up_ms=NOW + 90_000) for one in ADDRESSES]
    assert "is 90 s ahead of this machine's" in only(led(*ahead), "clock-skew").text
    finding = only(led(directories=(node(1, last_time_ms=NOW + 3_600_000),)), "clock-skew")
    assert "has a time 3600 s in the future" in finding.text


def test_an_even_number_of_voters() -> None:
    finding = only(led(member(1), member(2)), "even-voters")
    assert finding.text == "there are 2 voters: they tolerate the loss of 0, as 1 would"
    assert diagnose(led(member(1))) == []


def test_every_check_finds_something_in_these_tests() -> None:
    """Fails when a check is added without a test of its finding."""
    source = Path(__file__).read_text()
    names = {
        line.strip().strip('",')
        for check in CHECKS
        for line in Path(check.__code__.co_filename).read_text().splitlines()
        if line.strip().startswith('"') and line.strip().endswith('",') and " " not in line.strip()
    }
    assert len(names) > 15
    assert not {name for name in names if f'"{name}"' not in source}


def test_a_directory_is_examined(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"process.roles=controller\nnode.id=4\nlog.dirs={tmp_path}\nnum.io.threads=many\n")
    found = look(config, probe_disk=True)
    assert found.path == tmp_path
    assert found.config is None
    assert any("num.io.threads" in problem for problem in found.problems)
    assert any("is not formatted" in problem for problem in found.problems)
    assert found.fsync_ms is not None
    assert not list(tmp_path.glob(".klamm*"))


def test_the_command_requires_something_to_examine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quorum", "doctor", "--bootstrap-server", "localhost:1"]) == 1
    said = capsys.readouterr().err
    assert "cannot connect to localhost:1" in said
    assert "is a broker running there? Name a node's server.properties" in said
    assert run(["quorum", "doctor", str(tmp_path / "absent")]) == 1
    assert "does not exist" in capsys.readouterr().err
