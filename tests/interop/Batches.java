import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.coordinator.share.PersisterStateBatchCombiner;
import org.apache.kafka.server.share.persister.PersisterStateBatch;

/** Merges the batches of each line of the standard input as Apache Kafka's share coordinator does. */
class Batches {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(";", -1);
            long start = Long.parseLong(parts[0]);
            StringBuilder out = new StringBuilder();
            for (PersisterStateBatch one : new PersisterStateBatchCombiner(read(parts[1]), read(parts[2]), start).combineStateBatches()) {
                if (out.length() > 0) {
                    out.append(' ');
                }
                out.append(one.firstOffset()).append(',').append(one.lastOffset()).append(',');
                out.append(one.deliveryState()).append(',').append(one.deliveryCount());
            }
            System.out.println(out);
        }
    }

    private static List<PersisterStateBatch> read(String text) {
        List<PersisterStateBatch> batches = new ArrayList<>();
        for (String one : text.isEmpty() ? new String[0] : text.split(" ")) {
            String[] values = one.split(",");
            batches.add(new PersisterStateBatch(
                Long.parseLong(values[0]), Long.parseLong(values[1]), Byte.parseByte(values[2]), Short.parseShort(values[3])));
        }
        return batches;
    }
}
