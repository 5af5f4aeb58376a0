"""A job on an Apache Kafka with TLS and SASL, with the options of jobs for Spark's own source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from klamm.admin import topics
from klamm.admin.client import Client
from klamm.client import KafkaClient
from klamm.pipelines import mirror
from klamm.pipelines.archive import archive, restore
from klamm.pipelines.audit import open_audit
from klamm.pipelines.mirror import MirrorOptions
from tests.interop.secured_kafka import PASSWORD, SecuredKafka, by_scram, of_the_quorum, trusting
from tests.spark.patience import patiently

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 3000


def options_of(node: SecuredKafka, listener: str, keys: dict[str, str]) -> dict[str, str]:
    """The options of a job."""
    return {"kafka.bootstrap.servers": node.address(listener)} | {f"kafka.{key}": value for key, value in keys.items()}


def shown_by_spark(spark: SparkSession) -> str:
    """The text of Spark's UI about all queries so far: descriptions, plans, their options."""
    java: Any = spark._jsparkSession
    store = java.sharedState().statusStore()
    executions = store.executionsList()
    texts: list[str] = []
    for at in range(executions.size()):
        execution = executions.apply(at)
        texts += [execution.description(), execution.details(), execution.physicalPlanDescription()]
        texts.append(execution.modifiedConfigs().toString())
    return "\n".join(texts)


def test_write_read_and_stream(spark: SparkSession, secured_kafka: SecuredKafka, tmp_path: Path) -> None:
    node = secured_kafka
    with Client(node.bootstrap) as admin:
        topics.create(admin, ["secured-in", "secured-out"], partitions=2, replication_factor=1)
    scram = options_of(node, "SCRAM", by_scram(node))
    # In the form for a shaded connector.
    jaas = scram["kafka.sasl.jaas.config"]
    scram["kafka.sasl.jaas.config"] = f"kafkashaded.{jaas}"
    key, certificate = node.files.key.read_text(), node.files.certificate.read_text()
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.key": key, "ssl.keystore.certificate.chain": certificate}
    mutual = options_of(node, "MUTUAL", {**trusting(node), **store})

    rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
    rows.write.format("klamm").mode("append").options(**scram, topic="secured-in").save()

    table = spark.read.format("klamm").options(**mutual, subscribe="secured-in").load()
    assert table.selectExpr("sum(cast(cast(value as string) as long))").first()[0] == ROWS * (ROWS - 1) // 2
    plan = patiently(lambda: table._jdf.queryExecution().toString())

    stream = (
        spark.readStream.format("klamm").options(**scram, subscribe="secured-in", startingOffsets="earliest").load()
    )
    writer = stream.select("value").writeStream.format("klamm").options(**mutual, topic="secured-out")
    writer = writer.option("deliveryGuarantee", "exactly-once").option("checkpointLocation", str(tmp_path / "state"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    progress = "".join(one.json for one in query.recentProgress)
    copied = {"kafka.isolation.level": "read_committed", "subscribe": "secured-out"}
    assert spark.read.format("klamm").options(**scram, **copied).load().count() == ROWS

    shown = shown_by_spark(spark)
    assert "secured" in shown or "klamm" in shown, "it is what Spark shows"
    checkpoint = "".join(file.read_text(errors="replace") for file in (tmp_path / "state").rglob("*") if file.is_file())
    explained = query._jsq.explainInternal(True)
    assert "klamm" in explained
    for text in (plan, explained, progress, checkpoint, shown, repr(query), str(table)):
        assert PASSWORD not in text
        assert key.splitlines()[1] not in text


def test_a_wrong_password_fails_the_query(spark: SparkSession, secured_kafka: SecuredKafka) -> None:
    wrong = options_of(secured_kafka, "SCRAM", by_scram(secured_kafka, password="wrong-word"))
    with pytest.raises(
        Exception, match=r"refuses user 'alice' by SCRAM-SHA-512: look at sasl\.jaas\.config"
    ) as refused:
        spark.read.format("klamm").options(**wrong, subscribe="secured-in").load().count()
    assert "wrong-word" not in str(refused.value)


@pytest.mark.slow
def test_pipelines_use_the_same_keys(
    spark: SparkSession, secured_kafka: SecuredKafka, bootstrap: str, tmp_path: Path
) -> None:
    scram, address = by_scram(secured_kafka), secured_kafka.address("SCRAM")
    with KafkaClient(address, scram) as client, Client(address, config=scram) as admin:
        topics.create(admin, ["kept"], partitions=1, replication_factor=1)
        client.produce("kept", 0, None, pa.array([b"%d" % number for number in range(ROWS)], pa.binary()))
        client.flush()
    kept, state = tmp_path / "kept", tmp_path / "state"
    assert archive(["kept"], kept, bootstrap=address, client=scram, spark=spark).records == ROWS
    done = restore(
        kept,
        bootstrap=address,
        rename={"kept": "kept-again"},
        apply=True,
        compare=True,
        state=state,
        client=scram,
        spark=spark,
    )
    assert done.written == ROWS
    checkpoint = str(tmp_path / "mirror")
    options = MirrorOptions(
        address, bootstrap, checkpoint, mirror.topics(names=["kept"]), once=True, source_config=scram
    )
    assert "sesame" not in repr(options)
    assert mirror.mirror(options, spark=spark).records == ROWS
    controllers, keys = secured_kafka.address("QUORUM"), of_the_quorum(secured_kafka)
    with open_audit(bootstrap_controller=controllers, client=keys, spark=spark) as audit:
        assert audit.table("TopicRecord").where("name = 'kept'").count() == 1
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"sesame" in file.read_bytes()]
