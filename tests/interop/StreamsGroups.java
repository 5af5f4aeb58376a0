import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/** Apache Kafka's own classes for streams groups: its encoding of records, and its assignor.
 *
 * Each line of standard input is a JSON object, answered by a JSON object on a line of standard output.
 * {"record": NAME, "value": FIELDS}: the encoding by the generated class in hexadecimal; FIELDS is its JSON.
 * {"members": ..., "subtopologies": ..., "standbys": N}: the tasks assigned to each member.
 */
public final class StreamsGroups {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String PACKAGE = "org.apache.kafka.coordinator.group.generated.";

    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = JSON.readTree(line);
            System.out.println(asked.has("record") ? record(asked) : assign(asked));
        }
    }

    private static JsonNode record(JsonNode asked) throws Exception {
        Class<?> converter = Class.forName(PACKAGE + asked.get("record").asText() + "JsonConverter");
        Object message = converter.getMethod("read", JsonNode.class, short.class)
            .invoke(null, asked.get("value"), (short) 0);
        ByteBuffer written = MessageUtil.toByteBufferAccessor((ApiMessage) message, (short) 0).buffer();
        byte[] raw = new byte[written.remaining()];
        written.get(raw);
        return JSON.createObjectNode().put("bytes", HexFormat.of().formatHex(raw));
    }

    private static JsonNode assign(JsonNode asked) {
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        asked.get("members").properties().forEach(entry -> members.put(entry.getKey(), new AssignmentMemberSpec(
            Optional.empty(),
            Optional.empty(),
            tasks(entry.getValue().get("active")),
            tasks(entry.getValue().get("standby")),
            Map.of(),
            entry.getValue().get("process").asText(),
            Map.of(),
            Map.of(),
            Map.of()
        )));
        Map<String, String> configs = Map.of("num.standby.replicas", asked.get("standbys").asText());
        Map<String, MemberAssignment> assigned = new StickyTaskAssignor()
            .assign(new GroupSpecImpl(members, configs), new Subtopologies(asked.get("subtopologies"))).members();
        ObjectNode answer = JSON.createObjectNode();
        assigned.forEach((member, assignment) -> {
            ObjectNode one = answer.putObject(member);
            one.set("active", written(assignment.activeTasks()));
            one.set("standby", written(assignment.standbyTasks()));
        });
        return answer;
    }

    private static Map<String, Set<Integer>> tasks(JsonNode node) {
        Map<String, Set<Integer>> tasks = new HashMap<>();
        node.properties().forEach(entry -> {
            Set<Integer> partitions = tasks.computeIfAbsent(entry.getKey(), key -> new HashSet<>());
            entry.getValue().forEach(partition -> partitions.add(partition.asInt()));
        });
        return tasks;
    }

    private static ObjectNode written(Map<String, Set<Integer>> tasks) {
        ObjectNode node = JSON.createObjectNode();
        tasks.forEach((subtopology, partitions) -> {
            ArrayNode list = node.putArray(subtopology);
            partitions.stream().sorted().forEach(list::add);
        });
        return node;
    }

    private record Subtopologies(JsonNode node) implements TopologyDescriber {
        @Override
        public List<String> subtopologies() {
            List<String> names = new ArrayList<>();
            node.fieldNames().forEachRemaining(names::add);
            return names.stream().sorted().toList();
        }

        @Override
        public int maxNumInputPartitions(String subtopology) {
            return node.get(subtopology).get("tasks").asInt();
        }

        @Override
        public boolean isStateful(String subtopology) {
            return node.get(subtopology).get("stateful").asBoolean();
        }
    }
}
