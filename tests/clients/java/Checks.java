import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

/** Runs named checks one after another and prints one line for each: {@code ok}, {@code not ok} or {@code skip}. */
final class Checks {
    /** A check; whatever it throws becomes the reason of its {@code not ok} line. */
    interface Body {
        void run() throws Exception;
    }

    /** Thrown by a check whose precondition the server or the driver does not meet. */
    static final class Skip extends RuntimeException {
        Skip(String reason) {
            super(reason);
        }
    }

    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private boolean failed;

    void check(String name, Body body) {
        long start = System.nanoTime();
        try {
            body.run();
            out.println("ok " + name);
        } catch (Skip skip) {
            out.println("skip " + name + ": " + skip.getMessage());
        } catch (Throwable problem) {
            failed = true;
            out.println("not ok " + name + ": " + problem.toString().replaceAll("\\s+", " "));
            if (System.getenv("CLIENT_TRACE") != null) {
                problem.printStackTrace();
            }
        }
        if (System.getenv("CLIENT_TRACE") != null) {
            System.err.println("# " + name + " " + (System.nanoTime() - start) / 1_000_000 + " ms");
        }
    }

    void note(String text) {
        out.println("# " + text);
    }

    int exitCode() {
        return failed ? 1 : 0;
    }

    static void equal(String what, Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError(what + ": expected " + brief(expected) + ", found " + brief(found));
        }
    }

    static void that(String what, boolean holds) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static String brief(Object value) {
        String text = String.valueOf(value);
        return text.length() <= 120 ? text : text.substring(0, 120) + "... (" + text.length() + " characters)";
    }
}
