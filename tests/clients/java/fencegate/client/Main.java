package fencegate.client;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Arrays;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs the test classes that are named, and prints the outcome of each test in a form for tests/clients/test_java.py.
 */
public final class Main extends RunListener {
    private Failure failure;

    private Main() {}

    /** Runs them. */
    public static void main(String[] names) throws ClassNotFoundException {
        JUnitCore core = new JUnitCore();
        core.addListener(new Main());
        for (String name : Arrays.asList(names)) core.run(Class.forName("fencegate.client." + name));
        System.exit(0);
    }

    @Override
    public void testStarted(Description test) {
        failure = null;
    }

    @Override
    public void testFailure(Failure found) {
        failure = found;
    }

    @Override
    public void testFinished(Description test) {
        StringWriter text = new StringWriter();
        if (failure == null) text.write("passed\n");
        else failure.getException().printStackTrace(new PrintWriter(text, true));
        System.out.println("CASE " + test.getTestClass().getSimpleName() + "." + test.getMethodName() + " "
                + text + "END");
    }
}
