from __future__ import annotations

import base64
import hashlib
import stat
from pathlib import Path

import pytest

from klamm._engine.quorum import StorageError
from klamm.config import sources
from klamm.config.node_config import NodeConfig, NodeConfigError
from klamm.formats import meta_properties, scram_credentials, storage
from klamm.formats.storage import FormatRequest, InitialController, feature_levels, format_storage
from klamm.protocol.generated import metadata_records as records
from klamm.protocol.uuids import parse_uuid

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
DIRECTORY = "6vzsYB21RLmPdRRXY4KFpw"


def configured(folder: Path, *overrides: str, static: bool = True) -> NodeConfig:
    voters = "controller.quorum.voters=1@localhost:9093" if static else "controller.quorum.voters="
    return sources.load(
        overrides=[
            f"log.dirs={folder / 'a'},{folder / 'b'}",
            "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            voters,
            "controller.quorum.bootstrap.servers=localhost:9093",
            *overrides,
        ]
    )


def test_a_fresh_directory_has_metadata_version_30_and_the_features_that_are_served(tmp_path: Path) -> None:
    said: list[str] = []
    format_storage(configured(tmp_path), FormatRequest(CLUSTER), said.append)
    assert said == [f"Formatting {tmp_path / name} with metadata.version 4.3-IV0." for name in ("a", "b")]
    for name in ("a", "b"):
        file = (tmp_path / name / "bootstrap.checkpoint").read_bytes()
        assert b"metadata.version\x00\x1e" in file
        assert b"group.version" in file
        assert b"share.version" in file
        assert b"streams.version" in file
        meta = meta_properties.parse((tmp_path / name / "meta.properties").read_text())
        assert (meta.cluster_id, meta.node_id) == (CLUSTER, 1)
    assert not list(tmp_path.rglob("*.tmp"))
    assert not (tmp_path / "a" / "__cluster_metadata-0").exists()


def test_a_blank_folder_gets_an_id_of_its_own(tmp_path: Path) -> None:
    config = configured(tmp_path)
    cluster_id = storage.format_blank(config)
    assert meta_properties.load(config.all_dirs).formatted[tmp_path / "a"].cluster_id == cluster_id
    assert len(parse_uuid(cluster_id)) == 16


def test_formatting_twice(tmp_path: Path) -> None:
    config = configured(tmp_path)
    format_storage(config, FormatRequest(CLUSTER))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(StorageError, match=r"is formatted already; --ignore-formatted"):
        format_storage(config, FormatRequest(CLUSTER))
    said: list[str] = []
    format_storage(config, FormatRequest(CLUSTER, ignore_formatted=True), said.append)
    assert said == ["All directories are formatted already."]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    with pytest.raises(StorageError, match=r"BBBBBBBBBBBBBBBBBBBBBA is the one asked for"):
        format_storage(config, FormatRequest("BBBBBBBBBBBBBBBBBBBBBA", ignore_formatted=True))


def test_a_new_disk_joins_the_formatted_ones(tmp_path: Path) -> None:
    format_storage(configured(tmp_path), FormatRequest(CLUSTER))
    wider = configured(tmp_path, f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'},{tmp_path / 'c'}")
    format_storage(wider, FormatRequest(CLUSTER, ignore_formatted=True))
    assert len(meta_properties.load(wider.all_dirs).formatted) == 3


def test_standalone_writes_its_voter_beside_the_metadata_log(tmp_path: Path) -> None:
    config = configured(tmp_path, static=False)
    format_storage(config, FormatRequest(CLUSTER, standalone=True))
    snapshot = tmp_path / "a" / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    own = meta_properties.load(config.all_dirs).formatted[tmp_path / "a"].directory_id
    assert own is not None
    assert own in snapshot.read_bytes()
    assert b"CONTROLLER\x0alocalhost" in snapshot.read_bytes()
    assert stat.S_IMODE(snapshot.stat().st_mode) == 0o400
    assert not (tmp_path / "b" / "__cluster_metadata-0").exists()


def test_initial_controllers_name_their_directories(tmp_path: Path) -> None:
    controllers = storage.parse_controllers(f"2@[::1]:9094:AAAAAAAAAAAAAAAAAAAB-g, 1@host:9093:{DIRECTORY}")
    assert controllers[1] == InitialController(1, "host", 9093, parse_uuid(DIRECTORY))
    assert controllers[0].host == "::1"
    config = configured(tmp_path, static=False)
    format_storage(config, FormatRequest(CLUSTER, initial_controllers=controllers))
    assert meta_properties.load(config.all_dirs).formatted[tmp_path / "a"].directory_id == parse_uuid(DIRECTORY)


def test_no_initial_controllers_writes_no_voters(tmp_path: Path) -> None:
    format_storage(configured(tmp_path, static=False), FormatRequest(CLUSTER, no_initial_controllers=True))
    assert not list(tmp_path.rglob("*-0000000000.checkpoint"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1@host:9093",
        f"host:9093:{DIRECTORY}",
        f"1@host:port:{DIRECTORY}",
        "1@host:9093:short",
        f"1@h:1:{CLUSTER}",
        f"1@host:9093:{DIRECTORY},1@host:9094:{DIRECTORY}",
    ],
)
def test_invalid_initial_controllers(text: str) -> None:
    with pytest.raises(NodeConfigError, match="--initial-controllers"):
        storage.parse_controllers(text)


def test_the_voters_must_be_known_in_one_way(tmp_path: Path) -> None:
    with pytest.raises(NodeConfigError, match=r"replace it by controller\.quorum\.bootstrap\.servers"):
        format_storage(configured(tmp_path), FormatRequest(CLUSTER, standalone=True))
    with pytest.raises(NodeConfigError, match="give --standalone"):
        format_storage(configured(tmp_path, static=False), FormatRequest(CLUSTER))
    assert list(tmp_path.iterdir()) == []


def levels(request: FormatRequest, *, dynamic: bool = False) -> dict[str, int]:
    return {name: level for name, level in feature_levels(request, has_dynamic_quorum=dynamic).items() if level}


def test_feature_levels() -> None:
    elr, groups = {"eligible.leader.replicas.version": 1}, {"group.version": 1}
    transactions = {"transaction.version": 2} | groups
    before_share = elr | transactions
    before_streams = before_share | {"share.version": 1}
    served = before_streams | {"streams.version": 1}
    assert levels(FormatRequest(CLUSTER)) == {"metadata.version": 30} | served
    assert levels(FormatRequest(CLUSTER), dynamic=True) == {"metadata.version": 30, "kraft.version": 1} | served
    assert levels(FormatRequest(CLUSTER, "4.2")) == {"metadata.version": 29} | served
    assert levels(FormatRequest(CLUSTER, "4.2-IV0")) == {"metadata.version": 28} | before_streams, "streams: 4.2-IV1"
    assert levels(FormatRequest(CLUSTER, "4.1")) == {"metadata.version": 27} | before_share, "share groups: 4.2-IV0"
    assert levels(FormatRequest(CLUSTER, "4.0")) == {"metadata.version": 25} | transactions, "ELR: from 4.1 on"
    assert levels(FormatRequest(CLUSTER, "4.0-IV1")) == {"metadata.version": 23} | groups, "transactions: 4.0-IV2"
    assert levels(FormatRequest(CLUSTER, "3.9")) == {"metadata.version": 21}, "groups: from 4.0-IV0 on"
    assert levels(FormatRequest(CLUSTER, features=dict.fromkeys(served, 0))) == {"metadata.version": 30}
    asked = FormatRequest(CLUSTER, features={"group.version": 1, "metadata.version": 25, "transaction.version": 1})
    assert levels(asked) == {"metadata.version": 25, "group.version": 1, "transaction.version": 1}


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        (FormatRequest(CLUSTER, features={"no.version": 1}), "no.version: there are"),
        (FormatRequest(CLUSTER, features={"group.version": 2}), "group.version=2: the level must be within 0-1"),
        (FormatRequest(CLUSTER, features={"metadata.version": 31}), "within 7-30"),
        (FormatRequest(CLUSTER, features={"kraft.version": 1}), "controller.quorum.voters is set"),
        (FormatRequest(CLUSTER, "4.0", {"metadata.version": 25}), "not both"),
        (FormatRequest(CLUSTER, "3.9", {"eligible.leader.replicas.version": 1}), "needs metadata.version 23"),
        (FormatRequest(CLUSTER, "5.0"), "--release-version 5.0 is not known"),
        (FormatRequest(CLUSTER, "3.0"), "use one from 3.3-IV3 to 4.3-IV0"),
    ],
)
def test_invalid_feature_levels(request_: FormatRequest, complaint: str) -> None:
    with pytest.raises(NodeConfigError) as caught:
        levels(request_)
    assert complaint in str(caught.value)


def test_releases() -> None:
    for text, level in (("4.3", 30), ("4.3.1", 30), ("4.2", 29), ("3.7", 19), ("3.7-IV2", 17), ("3.3-IV3", 7)):
        assert storage.level_of_release(text) == level
    assert storage.level_name(25) == "4.0-IV3"


def test_bootstrap_records_are_sorted_and_never_hold_kraft_version() -> None:
    found = storage.bootstrap_records(
        {"metadata.version": 30, "kraft.version": 1, "share.version": 1, "group.version": 1, "streams.version": 0}
    )
    names = [records.decode(one) for one in found]
    assert [getattr(one, "name", None) for one in names] == ["metadata.version", "group.version", "share.version"]


class TestScram:
    def test_a_password_is_hashed_as_in_rfc_5802(self) -> None:
        salt = base64.b64encode(b"QSXCR+Q6sek8bf92").decode()
        found = scram_credentials.parse(f'SCRAM-SHA-256=[name=user,password=pencil,salt="{salt}",iterations=4096]')
        salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"QSXCR+Q6sek8bf92", 4096)
        given = base64.b64encode(salted).decode()
        same = scram_credentials.parse(f'SCRAM-SHA-256=[name=user,saltedpassword="{given}",salt="{salt}"]')
        assert found == same
        assert (found.name, found.mechanism, found.iterations) == ("user", 1, 4096)
        assert len(found.stored_key) == len(found.server_key) == 32

    def test_a_salt_is_drawn_when_none_is_given(self) -> None:
        one, other = (scram_credentials.parse("SCRAM-SHA-512=[name=a,password=b]") for _ in range(2))
        assert one.salt != other.salt
        assert (one.mechanism, len(one.stored_key)) == (2, 64)

    @pytest.mark.parametrize(
        "argument",
        [
            "PLAIN=[name=a,password=b]",
            "SCRAM-SHA-256=name=a,password=hidden",
            "SCRAM-SHA-256=[password=hidden]",
            "SCRAM-SHA-256=[name=a]",
            "SCRAM-SHA-256=[name=a,password=hidden,saltedpassword=eA==]",
            "SCRAM-SHA-256=[name=a,password=hidden,iterations=1]",
            "SCRAM-SHA-256=[name=a,password=hidden,salt=!]",
            "SCRAM-SHA-256=[name=a,password=hidden,colour=red]",
        ],
    )
    def test_invalid_arguments(self, argument: str) -> None:
        with pytest.raises(scram_credentials.ScramError) as caught:
            scram_credentials.parse(argument)
        assert "hidden" not in str(caught.value)

    def test_credentials_reach_the_bootstrap_file(self, tmp_path: Path) -> None:
        request = FormatRequest(CLUSTER, scram=["SCRAM-SHA-256=[name=alice,password=secret]"])
        format_storage(configured(tmp_path), request)
        assert b"alice" in (tmp_path / "a" / "bootstrap.checkpoint").read_bytes()
        with pytest.raises(NodeConfigError, match=r"needs metadata\.version 11"):
            storage.bootstrap_records({"metadata.version": 10}, request.scram)
