// Writes record batches with Apache Kafka's own classes, and describes batches that someone else wrote.
//
//   java -cp 'KAFKA_LIBS/*' KafkaRecords.java write DIR      writes DIR/<case>.bin and DIR/<case>.txt
//   java -cp 'KAFKA_LIBS/*' KafkaRecords.java describe FILE  prints what the batches of FILE hold
//   java -cp 'KAFKA_LIBS/*' KafkaRecords.java judge FILE     prints the error code of a produce of each int32-sized
//                                                            piece of FILE, the time being TIME
//
// KAFKA_LIBS is the libs folder of an Apache Kafka 4.3 distribution. The lines of a description:
//   batch <base offset> <last offset> <leader epoch> <attributes> <base timestamp> <max timestamp>
//         <producer id> <producer epoch> <base sequence> <count>                        (on one line)
//   record <offset> <timestamp> <key> <value> [<header key>=<header value> ...]
// where bytes are "-" for null, hex up to 32 bytes, else <length>#<CRC-32C in hex>.

import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.zip.CRC32C;

import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class KafkaRecords {
    static final long TIME = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        if (args.length == 2 && args[0].equals("write")) {
            write(Path.of(args[1]));
        } else if (args.length == 2 && args[0].equals("describe")) {
            byte[] bytes = Files.readAllBytes(Path.of(args[1]));
            System.out.print(describe(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes))));
        } else if (args.length == 2 && args[0].equals("judge")) {
            ByteBuffer pieces = ByteBuffer.wrap(Files.readAllBytes(Path.of(args[1])));
            while (pieces.hasRemaining()) {
                ByteBuffer piece = pieces.slice(pieces.position() + 4, pieces.getInt(pieces.position()));
                pieces.position(pieces.position() + 4 + piece.remaining());
                byte[] own = new byte[piece.remaining()];
                piece.get(own);
                System.out.println(judge(ByteBuffer.wrap(own)));
            }
        } else {
            System.err.println("usage: KafkaRecords write DIR | describe FILE | judge FILE");
            System.exit(2);
        }
    }

    /** What a leader answers to a client: its checks before the log's, the log's, then those of each record. */
    static short judge(ByteBuffer bytes) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(bytes);
            ProduceRequest.validateRecords((short) 12, records);
            MutableRecordBatch batch = records.batches().iterator().next();
            if (batch.baseOffset() != 0)
                throw new InvalidRecordException("base offset");
            if (!batch.isValid())
                throw new CorruptRecordException("checksum");
            CompressionType type = CompressionType.forId(batch.compressionType().id);
            new LogValidator(records, new TopicPartition("t", 0), fixedTime(), type, Compression.of(type).build(), false,
                RecordBatch.MAGIC_VALUE_V2, TimestampType.CREATE_TIME, Long.MAX_VALUE, 3_600_000L, 7, AppendOrigin.CLIENT)
                .validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), noMetrics(), BufferSupplier.NO_CACHING);
            return 0;
        } catch (RecordValidationException e) {
            return Errors.forException(e.invalidException()).code();
        } catch (Throwable e) {
            return Errors.forException(e).code();
        }
    }

    static Time fixedTime() {
        return (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, args) -> method.getName().equals("milliseconds") ? TIME : 0L);
    }

    static LogValidator.MetricsRecorder noMetrics() {
        Class<?> type = LogValidator.MetricsRecorder.class;
        return (LogValidator.MetricsRecorder) Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
            (proxy, method, args) -> null);
    }

    static String describe(MemoryRecords records) {
        StringBuilder out = new StringBuilder();
        records.batches().forEach(batch -> {
            batch.ensureValid();
            DefaultRecordBatch v2 = (DefaultRecordBatch) batch;
            int attributes = batch.compressionType().id
                | (batch.timestampType() == TimestampType.LOG_APPEND_TIME ? 0x08 : 0)
                | (batch.isTransactional() ? 0x10 : 0)
                | (batch.isControlBatch() ? 0x20 : 0)
                | (batch.deleteHorizonMs().isPresent() ? 0x40 : 0);
            out.append(String.format("batch %d %d %d %d %d %d %d %d %d %d%n", batch.baseOffset(), batch.lastOffset(),
                batch.partitionLeaderEpoch(), attributes, v2.baseTimestamp(), batch.maxTimestamp(),
                batch.producerId(), batch.producerEpoch(), batch.baseSequence(), batch.countOrNull()));
            for (org.apache.kafka.common.record.internal.Record record : batch) {
                out.append(String.format("record %d %d %s %s", record.offset(), record.timestamp(),
                    show(record.key()), show(record.value())));
                for (Header header : record.headers()) {
                    ByteBuffer value = header.value() == null ? null : ByteBuffer.wrap(header.value());
                    out.append(' ').append(header.key()).append('=').append(show(value));
                }
                out.append('\n');
            }
        });
        return out.toString();
    }

    static String show(ByteBuffer bytes) {
        if (bytes == null)
            return "-";
        if (bytes.remaining() > 32) {
            CRC32C crc = new CRC32C();
            crc.update(bytes.duplicate());
            return String.format("%d#%08x", bytes.remaining(), crc.getValue());
        }
        StringBuilder out = new StringBuilder("x");
        for (ByteBuffer rest = bytes.duplicate(); rest.hasRemaining(); )
            out.append(String.format("%02x", rest.get()));
        return out.toString();
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static SimpleRecord[] mixed() {
        Header[] headers = {new RecordHeader("source", utf8("test")), new RecordHeader("empty", new byte[0]),
            new RecordHeader("none", null), new RecordHeader("source", utf8("again"))};
        return new SimpleRecord[] {
            new SimpleRecord(TIME, utf8("key"), utf8("value")),
            new SimpleRecord(TIME - 70_000, null, utf8("no key")),
            new SimpleRecord(TIME + 5, utf8("tombstone"), null),
            new SimpleRecord(TIME + 10, new byte[0], new byte[0]),
            new SimpleRecord(TIME + 10, utf8("k"), utf8("with headers"), headers),
        };
    }

    /** Text of about the size given, that compresses well. */
    static byte[] text(int size, int seed) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; out.length() < size; i++)
            out.append("{\"id\":").append(seed + i / 1000).append(",\"state\":\"shipped\"},");
        return utf8(out.substring(0, size));
    }

    static SimpleRecord[] many(int count, int size) {
        SimpleRecord[] records = new SimpleRecord[count];
        for (int i = 0; i < count; i++)
            records[i] = new SimpleRecord(TIME + i, utf8("key-" + i), text(size, i));
        return records;
    }

    static MemoryRecords batch(Compression compression, TimestampType type, long producerId, int sequence,
                               boolean transactional, SimpleRecord... records) {
        return MemoryRecords.withRecords(RecordBatch.MAGIC_VALUE_V2, 100L, compression, type, producerId,
            (short) (producerId < 0 ? -1 : 3), sequence, 7, transactional, records);
    }

    static MemoryRecords plain(Compression compression, SimpleRecord... records) {
        return batch(compression, TimestampType.CREATE_TIME, -1, -1, false, records);
    }

    static void write(Path dir) throws Exception {
        Files.createDirectories(dir);
        for (CompressionType type : CompressionType.values()) {
            Compression compression = Compression.of(type).build();
            put(dir, type.name + "-mixed", plain(compression, mixed()));
            put(dir, type.name + "-many", plain(compression, many(40, 60)));
            if (type != CompressionType.NONE)
                put(dir, type.name + "-large", plain(compression, many(2, 70_000)));
            byte[] noise = new byte[3000];
            new Random(7).nextBytes(noise);
            put(dir, type.name + "-noise", plain(compression, new SimpleRecord(TIME, noise)));
        }
        put(dir, "gzip-level-1", plain(Compression.gzip().level(1).build(), many(40, 60)));
        put(dir, "gzip-level-9", plain(Compression.gzip().level(9).build(), many(40, 60)));
        put(dir, "lz4-level-1", plain(Compression.lz4().level(1).build(), many(40, 60)));
        put(dir, "lz4-level-17", plain(Compression.lz4().level(17).build(), many(40, 60)));
        put(dir, "zstd-level-minus-5", plain(Compression.zstd().level(-5).build(), many(40, 60)));
        put(dir, "zstd-level-22", plain(Compression.zstd().level(22).build(), many(40, 60)));
        put(dir, "idempotent", batch(Compression.NONE, TimestampType.CREATE_TIME, 4000, 17, false, mixed()));
        put(dir, "transactional", batch(Compression.NONE, TimestampType.CREATE_TIME, 1L << 40, Integer.MAX_VALUE, true, mixed()));
        put(dir, "no-timestamps", plain(Compression.NONE, new SimpleRecord(-1, utf8("a")), new SimpleRecord(-1, utf8("b"))));
        writeAppendTime(dir);
        writeCompacted(dir);
        writeControl(dir);
    }

    static void writeAppendTime(Path dir) throws Exception {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1024), RecordBatch.MAGIC_VALUE_V2,
            Compression.NONE, TimestampType.LOG_APPEND_TIME, 100L, TIME + 99);
        for (SimpleRecord record : mixed())
            builder.append(record);
        put(dir, "log-append-time", builder.build());
    }

    /** Three batches of which compaction kept some records, a tombstone with its horizon, and an empty batch. */
    static void writeCompacted(Path dir) throws Exception {
        ByteBuffer source = ByteBuffer.allocate(64 * 1024);
        source.put(batch(Compression.NONE, TimestampType.CREATE_TIME, 4000, 17, false, mixed()).buffer());
        for (long base : new long[] {105, 125}) {
            source.put(MemoryRecords.withRecords(RecordBatch.MAGIC_VALUE_V2, base, Compression.zstd().build(),
                TimestampType.CREATE_TIME, 4000, (short) 3, 22, 7, false, many(20, 90)).buffer());
        }
        source.flip();
        MemoryRecords.RecordFilter filter = new MemoryRecords.RecordFilter(TIME + 1000, 86_400_000L) {
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, false);
            }

            protected boolean shouldRetainRecord(RecordBatch batch, org.apache.kafka.common.record.internal.Record record) {
                return record.offset() < 125 && record.offset() % 3 == 0;
            }
        };
        ByteBuffer kept = ByteBuffer.allocate(64 * 1024);
        MemoryRecords.readableRecords(source).filterTo(filter, kept, BufferSupplier.NO_CACHING);
        kept.flip();
        put(dir, "compacted", MemoryRecords.readableRecords(kept));
    }

    static void writeControl(Path dir) throws Exception {
        for (ControlRecordType type : List.of(ControlRecordType.COMMIT, ControlRecordType.ABORT)) {
            EndTransactionMarker marker = new EndTransactionMarker(type, 12);
            put(dir, type.name().toLowerCase(), MemoryRecords.withEndTransactionMarker(100L, TIME, 7, 4000L, (short) 3, marker));
        }
        LeaderChangeMessage change = new LeaderChangeMessage().setLeaderId(2)
            .setVoters(voterIds(1, 2, 3)).setGrantingVoters(voterIds(2, 3));
        put(dir, "leader-change", MemoryRecords.withLeaderChangeMessage(100L, TIME, 7, ByteBuffer.allocate(1024), change));
        put(dir, "snapshot-header", MemoryRecords.withSnapshotHeaderRecord(0L, TIME, 7, ByteBuffer.allocate(1024),
            new SnapshotHeaderRecord().setLastContainedLogTimestamp(TIME - 1)));
        put(dir, "snapshot-footer", MemoryRecords.withSnapshotFooterRecord(0L, TIME, 7, ByteBuffer.allocate(1024),
            new SnapshotFooterRecord()));
        put(dir, "kraft-version", MemoryRecords.withKRaftVersionRecord(100L, TIME, 7, ByteBuffer.allocate(1024),
            new KRaftVersionRecord().setKRaftVersion((short) 1)));
        put(dir, "kraft-voters", MemoryRecords.withVotersRecord(100L, TIME, 7, ByteBuffer.allocate(1024), voters()));
    }

    static List<LeaderChangeMessage.Voter> voterIds(int... ids) {
        return Arrays.stream(ids).mapToObj(id -> new LeaderChangeMessage.Voter().setVoterId(id)).toList();
    }

    static VotersRecord voters() {
        VotersRecord.EndpointCollection endpoints = new VotersRecord.EndpointCollection();
        endpoints.add(new VotersRecord.Endpoint().setName("CONTROLLER").setHost("node-1.example").setPort(9093));
        endpoints.add(new VotersRecord.Endpoint().setName("OTHER").setHost("::1").setPort(65535));
        VotersRecord.KRaftVersionFeature versions = new VotersRecord.KRaftVersionFeature()
            .setMinSupportedVersion((short) 0).setMaxSupportedVersion((short) 1);
        VotersRecord.Voter first = new VotersRecord.Voter().setVoterId(1).setVoterDirectoryId(new Uuid(1, 2))
            .setEndpoints(endpoints).setKRaftVersionFeature(versions);
        VotersRecord.Voter second = new VotersRecord.Voter().setVoterId(2).setVoterDirectoryId(new Uuid(-1, -2))
            .setKRaftVersionFeature(versions);
        return new VotersRecord().setVoters(List.of(first, second));
    }

    static void put(Path dir, String name, MemoryRecords records) throws Exception {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        Files.write(dir.resolve(name + ".bin"), bytes);
        Files.writeString(dir.resolve(name + ".txt"), describe(records));
    }
}
