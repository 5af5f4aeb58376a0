import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/** Runs Apache Kafka's command line tools one after the other in one JVM: starting a JVM takes longer than the work.
 *
 * Each line of standard input has the tool's input in Base64, a class and its arguments, separated by 0x1F. The
 * response on standard output is a line of the exit code and, in Base64, the tool's output and its errors.
 */
public final class Tools {
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static Integer exitCode;

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\u001f", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            ByteArrayOutputStream complained = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
            System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(words[0])));
            exitCode = null;
            int code = run(words[1], Arrays.copyOfRange(words, 2, words.length));
            Base64.Encoder base64 = Base64.getEncoder();
            answers.println(code + " " + base64.encodeToString(printed.toByteArray())
                + " " + base64.encodeToString(complained.toByteArray()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** Only the first exit counts: some tools report the exception as a failure and exit again. */
    private static void end(int code) {
        if (exitCode == null) {
            exitCode = code;
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw new Ended();
    }

    private static int run(String tool, String[] arguments) {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return exitCode == null ? 0 : exitCode;
        } catch (InvocationTargetException error) {
            if (exitCode != null) {
                return exitCode;
            }
            // The exit code of a JVM whose main throws.
            error.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            return 127;
        }
    }
}
