import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** A job of Flink that copies topic "input" to topic "output" exactly once, in a cluster inside this JVM.
 *
 * Arguments: bootstrap servers, the directory of checkpoints, a TransactionNamingStrategy, and the checkpoint to restore,
 * if there is one.
 */
public final class Transfer {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.dir", arguments[1]);
        settings.setString("execution.checkpointing.interval", "500 ms");
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "1 s");
        settings.setString("taskmanager.memory.network.max", "32 mb");
        settings.setString("taskmanager.memory.network.min", "32 mb");
        settings.setString("taskmanager.memory.managed.size", "16 mb");
        if (arguments.length > 3) {
            settings.setString("execution.state-recovery.path", arguments[3]);
        }
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics("input")
            .setGroupId("transfer")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic("output")
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("transfer")
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(arguments[2]))
            .setProperty("transaction.timeout.ms", String.valueOf(Duration.ofMinutes(10).toMillis()))
            .build();
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        job.fromSource(source, WatermarkStrategy.noWatermarks(), "input").uid("input").sinkTo(sink).uid("output");
        job.execute("transfer");
    }
}
