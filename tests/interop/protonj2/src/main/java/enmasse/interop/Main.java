package enmasse.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.ClientOptions;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;

/** {@code Main SCENARIO HOST PORT PREFIX}: runs one scenario against addresses that begin with PREFIX; exit 0 if it held. */
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

    public static void main(String[] arguments) {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("queue", Stored::queue);
        scenarios.put("outcomes", Stored::outcomes);
        scenarios.put("topic", Stored::topic);
        scenarios.put("presettled", Stored::presettled);
        scenarios.put("large", Stored::large);
        scenarios.put("ttl", Stored::ttl);
        scenarios.put("types-send", Stored::typesSend);
        scenarios.put("types-receive", Stored::typesReceive);
        scenarios.put("anycast", Direct::anycast);
        scenarios.put("multicast", Direct::multicast);
        scenarios.put("request", Direct::request);
        scenarios.put("unknown", Direct::unknown);
        Scenario scenario = arguments.length == 4 ? scenarios.get(arguments[0]) : null;
        if (scenario == null) {
            System.err.println("usage: Main SCENARIO HOST PORT PREFIX, SCENARIO one of " + scenarios.keySet());
            System.exit(2);
        }
        try {
            scenario.run(new Peer(arguments[1], Integer.parseInt(arguments[2]), arguments[3]));
        } catch (Throwable thrown) {
            thrown.printStackTrace();
            System.exit(1);
        }
        System.exit(0); // whatever threads the client still has
    }

    private Main() {}
}
