import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/** Runs main classes of Kafka one after another in one JVM: a line of standard input each, arguments parted by U+001F. */
public class RunMains {
    static final class Ended extends Error {}

    /** The first code a tool ended with: some catch what ends them, and end once more. */
    static Integer firstCode;

    static void end(int code) {
        if (firstCode == null) firstCode = code;
        throw new Ended();
    }

    public static void main(String[] ignored) throws Exception {
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\u001f", -1);
            firstCode = null;
            try {
                Object arguments = Arrays.copyOfRange(parts, 1, parts.length);
                Class.forName(parts[0]).getMethod("main", String[].class).invoke(null, arguments);
            } catch (InvocationTargetException error) {
                if (firstCode == null) {
                    firstCode = 99;
                    error.getCause().printStackTrace(System.out);
                }
            }
            System.out.print("\u001e" + (firstCode == null ? 0 : firstCode) + "\u001d");
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
