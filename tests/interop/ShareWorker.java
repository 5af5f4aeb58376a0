import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A share consumer; the value of each record is the action: accept; release, and accept the second time; reject; renew,
 * and accept the second time; hold it, and everything after it, until the process is killed.
 *
 * It prints a line for each batch, record and commit, and closes when standard input ends. Arguments: bootstrap servers,
 * group, topic, and settings as key=value.
 */
public final class ShareWorker {
    /** The next poll returns these records again. */
    private static final Set<Long> RENEWED = new HashSet<>();

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("default.api.timeout.ms", "60000");
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        AtomicBoolean ended = new AtomicBoolean();
        Thread reader = new Thread(() -> readToEnd(ended));
        reader.setDaemon(true);
        reader.start();
        StringDeserializer text = new StringDeserializer();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings, text, text)) {
            consumer.subscribe(Set.of(args[2]));
            while (!ended.get())
                work(consumer);
        }
        System.out.println("closed");
    }

    static void readToEnd(AtomicBoolean ended) {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            while (lines.readLine() != null) { }
        } catch (java.io.IOException error) {
            // The parent process has ended.
        }
        ended.set(true);
    }

    static void work(KafkaShareConsumer<String, String> consumer) throws InterruptedException {
        var records = consumer.poll(Duration.ofMillis(200));
        if (records.isEmpty())
            return;
        System.out.println("batch " + records.count());
        for (ConsumerRecord<String, String> record : records) {
            int count = record.deliveryCount().orElse((short) -1);
            System.out.println("record " + record.partition() + " " + record.offset() + " " + count + " " + record.value());
            switch (record.value()) {
                case "release" -> consumer.acknowledge(record, count > 1 ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
                case "reject" -> consumer.acknowledge(record, AcknowledgeType.REJECT);
                case "renew" -> consumer.acknowledge(
                    record, RENEWED.add(record.offset()) ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT);
                case "hold" -> Thread.sleep(Long.MAX_VALUE);
                default -> consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            }
        }
        commit(consumer);
    }

    static void commit(KafkaShareConsumer<String, String> consumer) {
        Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync();
        results.forEach((partition, error) -> System.out.println(
            "commit " + partition.partition() + " " + error.map(one -> one.getClass().getSimpleName()).orElse("ok")));
    }
}
