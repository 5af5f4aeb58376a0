import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/** Answers each line of standard input, a JSON object, with the same object and what Apache Kafka makes of it. */
class KafkaMetadata {
    static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode node = (ObjectNode) MAPPER.readTree(line);
            if (node.has("type")) {
                record(node);
            } else {
                change(node);
            }
            System.out.println(MAPPER.writeValueAsString(node));
        }
    }

    static String hex(ApiMessageAndVersion message) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        MetadataRecordSerde serde = MetadataRecordSerde.INSTANCE;
        java.nio.ByteBuffer buffer = java.nio.ByteBuffer.allocate(serde.recordSize(message, cache));
        serde.write(message, cache, new ByteBufferAccessor(buffer));
        return HexFormat.of().formatHex(buffer.array());
    }

    static void record(ObjectNode node) {
        short version = (short) node.get("version").asInt();
        short type = (short) node.get("type").asInt();
        var message = MetadataJsonConverters.readJson(node.get("fields"), type, version);
        node.put("hex", hex(new ApiMessageAndVersion(message, version)));
    }

    static List<Integer> ids(JsonNode node) {
        List<Integer> list = new ArrayList<>();
        node.forEach(id -> list.add(id.asInt()));
        return list;
    }

    static int[] array(JsonNode node) {
        return ids(node).stream().mapToInt(Integer::intValue).toArray();
    }

    static Uuid uuid(JsonNode node) {
        return Uuid.fromString(node.asText());
    }

    static void change(ObjectNode node) {
        JsonNode before = node.get("partition");
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(array(before.get("replicas")))
            .setDirectories(StreamSupport.stream(before.get("directories").spliterator(), false)
                .map(KafkaMetadata::uuid).toArray(Uuid[]::new))
            .setIsr(array(before.get("isr")))
            .setRemovingReplicas(array(before.get("removing")))
            .setAddingReplicas(array(before.get("adding")))
            .setElr(array(before.get("elr")))
            .setLastKnownElr(array(before.get("lastKnownElr")))
            .setLeader(before.get("leader").asInt())
            .setLeaderRecoveryState(LeaderRecoveryState.of((byte) before.get("recovery").asInt()))
            .setLeaderEpoch(5)
            .setPartitionEpoch(9)
            .build();
        Set<Integer> mayLead = Set.copyOf(ids(node.get("mayLead")));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition, Uuid.fromString("AAAAAAAAAAAAAAAAAAAABw"), 3, mayLead::contains,
            MetadataVersion.fromFeatureLevel((short) node.get("metadataVersion").asInt()),
            node.get("minIsr").asInt(), node.get("elr").asBoolean());
        builder.setDefaultDirProvider(id -> new Uuid(1000, id));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(node.get("election").asText()));
        if (node.has("isr")) builder.setTargetIsr(ids(node.get("isr")));
        if (node.has("replicas")) builder.setTargetReplicas(ids(node.get("replicas")));
        if (node.has("removing")) builder.setTargetRemoving(ids(node.get("removing")));
        if (node.has("adding")) builder.setTargetAdding(ids(node.get("adding")));
        if (node.has("recovery")) {
            builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of((byte) node.get("recovery").asInt()));
        }
        if (node.has("uncleanShutdown")) {
            builder.setUncleanShutdownReplicas(List.of(node.get("uncleanShutdown").asInt()));
        }
        if (node.has("directory")) {
            builder.setDirectory(node.get("directory").get(0).asInt(), uuid(node.get("directory").get(1)));
        }
        node.put("hex", builder.build().map(KafkaMetadata::hex).orElse(""));
    }
}
