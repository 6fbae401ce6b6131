package enmasse.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.ClientOptions;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;

/**
 * {@code Main HOST PORT PREFIX}: runs the scenarios that standard input names, a line each, against addresses that begin
 * with PREFIX. Answers each with a line: {@code ok}, or {@code failed} and why, with its lines joined by tabs.
 */
public final class Main {
    interface Scenario {
        void run(Peer peer) throws Exception;
    }

    /** Where the suite is, and what its addresses begin with. */
    record Peer(String host, int port, String prefix) {
        String address(String name) {
            return prefix + name;
        }

        Link connect() throws Exception {
            return connect(new ClientOptions(), new ConnectionOptions());
        }

        Link connect(ClientOptions client, ConnectionOptions options) throws Exception {
            Client made = Client.create(client);
            return new Link(made, made.connect(host, port, options.openTimeout(60_000).requestTimeout(60_000)));
        }
    }

    /** A connection with the client it belongs to. */
    record Link(Client client, Connection connection) implements AutoCloseable {
        @Override
        public void close() {
            client.close();
        }
    }

    static void check(String what, Object expected, Object actual) {
        if (!expected.equals(actual)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + actual);
        }
    }

    static <E extends Throwable> E expect(Class<E> kind, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (Throwable thrown) {
            for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
                if (kind.isInstance(cause)) {
                    return kind.cast(cause);
                }
            }
            throw new AssertionError("not the expected failure", thrown);
        }
        throw new AssertionError("expected " + kind.getSimpleName() + ", but it went well");
    }

    public static void main(String[] arguments) throws IOException {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("queue", Stored::queue);
        scenarios.put("outcomes", Stored::outcomes);
        scenarios.put("topic", Stored::topic);
        scenarios.put("presettled", Stored::presettled);
        scenarios.put("large", Stored::large);
        scenarios.put("ttl", Stored::ttl);
        scenarios.put("transacted", Stored::transacted);
        scenarios.put("types-send", Stored::typesSend);
        scenarios.put("types-receive", Stored::typesReceive);
        scenarios.put("anycast", Direct::anycast);
        scenarios.put("multicast", Direct::multicast);
        scenarios.put("request", Direct::request);
        scenarios.put("unknown", Direct::unknown);
        if (arguments.length != 3) {
            System.err.println("usage: Main HOST PORT PREFIX, and on standard input " + scenarios.keySet());
            System.exit(2);
        }
        Peer peer = new Peer(arguments[0], Integer.parseInt(arguments[1]), arguments[2]);
        BufferedReader names = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String name = names.readLine(); name != null; name = names.readLine()) {
            System.out.println(outcome(scenarios.get(name), peer));
        }
        System.exit(0); // whatever threads the client still has
    }

    private static String outcome(Scenario scenario, Peer peer) {
        try {
            scenario.run(peer);
            return "ok";
        } catch (Throwable thrown) {
            StringWriter text = new StringWriter();
            thrown.printStackTrace(new PrintWriter(text));
            return "failed " + text.toString().replaceAll("\\s*\n\\s*", "\t");
        }
    }

    private Main() {}
}
