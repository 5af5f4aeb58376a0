import java.io.IOException;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group: `topic` or `^pattern`, then KEY=VALUE of the consumer. It prints its assignments and records,
 * commits after each poll, and closes when its standard input ends.
 */
public final class ConsumerMember {
    public static void main(String[] arguments) throws IOException {
        Map<String, Object> config = new HashMap<>();
        for (int at = 1; at < arguments.length; at++) {
            String[] words = arguments[at].split("=", 2);
            config.put(words[0], words[1]);
        }
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, text, text)) {
            ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    say("revoked", partitions);
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    say("assigned", partitions);
                }

                @Override
                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    say("lost", partitions);
                }
            };
            if (arguments[0].startsWith("^")) {
                consumer.subscribe(new SubscriptionPattern(arguments[0].substring(1)), listener);
            } else {
                consumer.subscribe(List.of(arguments[0]), listener);
            }
            while (System.in.available() == 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println("read " + record.value());
                }
                consumer.commitAsync();
            }
            consumer.commitSync();
        }
    }

    private static void say(String what, Collection<TopicPartition> partitions) {
        TreeSet<String> names = new TreeSet<>();
        partitions.forEach(partition -> names.add(partition.toString()));
        System.out.println(what + " " + String.join(" ", names));
    }
}
