import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

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

    private static final int SECONDS_MAX = 20;

    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private boolean failed;
    private String hung;

    /** Runs the body in a thread of its own, so that one that hangs fails by name; those after it are then not run. */
    void check(String name, Body body) {
        long start = System.nanoTime();
        try {
            that("not run: " + hung + " before it hung", hung == null);
            FutureTask<Void> task = new FutureTask<>(() -> {
                body.run();
                return null;
            });
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            thread.start();
            outcome(name, task);
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

    private void outcome(String name, FutureTask<Void> task) throws Throwable {
        try {
            task.get(SECONDS_MAX, TimeUnit.SECONDS);
        } catch (ExecutionException problem) {
            throw problem.getCause();
        } catch (TimeoutException slow) {
            hung = name;
            throw new AssertionError("no end within " + SECONDS_MAX + " s");
        }
    }

    boolean hung() {
        return hung != null;
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
