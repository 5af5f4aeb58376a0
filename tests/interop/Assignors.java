import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.MetadataRecordSerde;

/** Answers each line of JSON with a line of JSON: the results of Apache Kafka's assignors, hashes and patterns.
 *
 * Members and partitions are passed in the order of the request; only Kafka's own hash maps change it.
 */
public final class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, PartitionAssignor> BY_NAME =
        Map.of("uniform", new UniformAssignor(), "range", new RangeAssignor(), "simple", new SimpleAssignor());

    public static void main(String[] none) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = JSON.readTree(line);
            JsonNode answer = switch (request.get("ask").asText()) {
                case "assign" -> assign(request);
                case "hash" -> hash(request);
                default -> match(request);
            };
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    private static Map<Uuid, Set<Integer>> partitions(JsonNode byTopic) {
        Map<Uuid, Set<Integer>> partitions = new LinkedHashMap<>();
        byTopic.properties().forEach(topic -> {
            Set<Integer> indexes = new TreeSet<>();
            topic.getValue().forEach(index -> indexes.add(index.asInt()));
            partitions.put(Uuid.fromString(topic.getKey()), indexes);
        });
        return partitions;
    }

    private static JsonNode assign(JsonNode request) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (JsonNode member : request.get("members")) {
            String id = member.get("id").asText();
            Set<Uuid> topics = new LinkedHashSet<>();
            member.get("topics").forEach(topic -> topics.add(Uuid.fromString(topic.asText())));
            Map<Uuid, Set<Integer>> target = partitions(member.get("target"));
            target.forEach((topic, indexes) -> indexes.forEach(
                index -> owners.computeIfAbsent(topic, none -> new HashMap<>()).put(index, id)));
            Optional<String> instance = Optional.ofNullable(member.get("instance").textValue());
            members.put(id, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(target)));
        }
        Map<Uuid, Integer> counts = new HashMap<>();
        request.get("partitions").properties().forEach(
            topic -> counts.put(Uuid.fromString(topic.getKey()), topic.getValue().asInt()));
        SubscriptionType type = request.get("homogeneous").asBoolean()
            ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        Optional<Map<Uuid, Set<Integer>>> assignable = request.get("assignable").isNull()
            ? Optional.empty() : Optional.of(partitions(request.get("assignable")));
        ObjectNode answer = JSON.createObjectNode();
        GroupAssignment assigned;
        try {
            assigned = BY_NAME.get(request.get("assignor").asText()).assign(
                new GroupSpecImpl(members, type, owners, assignable), describer(counts));
        } catch (RuntimeException error) {
            return answer.put("crash", error.toString());
        }
        for (String id : members.keySet()) {
            ObjectNode byTopic = answer.putObject(id);
            MemberAssignment assignment = assigned.members().get(id);
            if (assignment != null) {
                new TreeMap<>(assignment.partitions()).forEach((topic, indexes) -> {
                    ArrayNode sorted = byTopic.putArray(topic.toString());
                    new TreeSet<>(indexes).forEach(sorted::add);
                });
            }
        }
        return answer;
    }

    private static SubscribedTopicDescriber describer(Map<Uuid, Integer> counts) {
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
    }

    /** The hash of each topic, and that of a group with all topics: numbers as text. */
    private static JsonNode hash(JsonNode request) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        for (JsonNode record : request.get("records")) {
            byte[] framed = Base64.getDecoder().decode(record.asText());
            delta.replay(MetadataRecordSerde.INSTANCE.read(
                new ByteBufferAccessor(ByteBuffer.wrap(framed)), framed.length).message());
        }
        KRaftCoordinatorMetadataImage image = new KRaftCoordinatorMetadataImage(delta.apply(MetadataProvenance.EMPTY));
        Map<String, Long> hashes = new HashMap<>();
        image.topicNames().forEach(name -> hashes.put(name, Utils.computeTopicHash(name, image)));
        ObjectNode answer = JSON.createObjectNode();
        ObjectNode topics = answer.putObject("topics");
        hashes.forEach((name, hash) -> topics.put(name, hash.toString()));
        answer.put("group", Long.toString(Utils.computeGroupHash(hashes)));
        return answer;
    }

    /** The names that a pattern matches, or RE2/J's error. */
    private static JsonNode match(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        Pattern pattern;
        try {
            pattern = Pattern.compile(request.get("pattern").asText());
        } catch (PatternSyntaxException error) {
            return answer.put("error", error.getDescription());
        } catch (RuntimeException | StackOverflowError error) {
            return answer.put("crash", error.toString());
        }
        ArrayNode matched = answer.putArray("matched");
        request.get("names").forEach(name -> matched.add(pattern.matcher(name.asText()).matches()));
        return answer;
    }
}
