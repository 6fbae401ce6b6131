package enmasse.interop;

import jakarta.jms.Connection;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.TextMessage;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * {@code Main WAY [SCHEME://]HOST PORT PREFIX [SCENARIO...]}: runs scenarios (all those of WAY, {@code router} or {@code broker}, where
 * none is named) against addresses that begin with PREFIX. Says of each on a line of its own {@code ok SCENARIO}, or
 * {@code failed SCENARIO} and why with its lines joined by tabs.
 */
public final class Main {
    static final long LIMIT = 60_000;

    interface Scenario {
        void run(Peer peer) throws Exception;
    }

    /** Where the addresses are, and what they begin with. */
    record Peer(String host, int port, String prefix) {
        String address(String name) {
            return prefix + name;
        }

        JmsConnectionFactory factory(String... options) {
            String more = options.length == 0 ? "" : "&" + String.join("&", options);
            return new JmsConnectionFactory((host.contains("://") ? "" : "amqp://") + host + ":" + port + "?jms.requestTimeout=" + LIMIT
                + "&jms.sendTimeout=" + LIMIT + "&jms.connectTimeout=" + LIMIT + "&jms.closeTimeout=" + LIMIT + more);
        }

        /** A started connection; {@code options} as in a Qpid JMS URI. */
        Connection connect(String... options) throws JMSException {
            Connection connection = factory(options).createConnection();
            connection.start();
            return connection;
        }

        Connection connectAs(String clientId) throws JMSException {
            Connection connection = factory().createConnection();
            connection.setClientID(clientId);
            connection.start();
            return connection;
        }

        JMSContext context() {
            return factory().createContext(JMSContext.AUTO_ACKNOWLEDGE);
        }
    }

    static void check(String what, Object expected, Object actual) {
        if (!expected.equals(actual)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + actual);
        }
    }

    static void contains(String what, String part, String whole) {
        if (whole == null || !whole.contains(part)) {
            throw new AssertionError(what + ": expected something with '" + part + "', got " + whole);
        }
    }

    static <E extends Throwable> E expect(Class<E> kind, String what, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (Throwable thrown) {
            if (kind.isInstance(thrown)) {
                return kind.cast(thrown);
            }
            throw new AssertionError(what + ": not the expected failure", thrown);
        }
        throw new AssertionError(what + ": expected " + kind.getSimpleName() + ", but it went well");
    }

    static String text(Message message) throws JMSException {
        if (message == null) {
            throw new AssertionError("no message came");
        }
        return ((TextMessage) message).getText();
    }

    static List<String> texts(MessageConsumer consumer, int count) throws JMSException {
        List<String> found = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            found.add(text(consumer.receive(LIMIT)));
        }
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("temporary-queue", Temporary::queue);
        scenarios.put("temporary-topic", Temporary::topic);
        scenarios.put("temporary-lifetime", Temporary::lifetime);
        scenarios.put("request-reply", Temporary::requestReply);
        scenarios.put("durable", Subscriptions::durable);
        scenarios.put("unsubscribe", Subscriptions::unsubscribe);
        scenarios.put("shared", Subscriptions::shared);
        scenarios.put("shared-durable", Subscriptions::sharedDurable);
        scenarios.put("shared-durable-global", Subscriptions::sharedDurableGlobal);
        scenarios.put("no-local", Subscriptions::noLocal);
        scenarios.put("subscription-on-queue", Subscriptions::onQueue);
        scenarios.put("delay", Queues::delay);
        scenarios.put("simple-producer", Queues::simpleProducer);
        scenarios.put("unknown", Queues::unknown);
        scenarios.put("selector", Queues::selector);
        scenarios.put("browser", Queues::browser);
        scenarios.put("transacted", Queues::transacted);
        scenarios.put("transacted-across", Queues::transactedAcross);
        scenarios.put("pull", Queues::pull);
        scenarios.put("recover", Queues::recover);
        scenarios.put("max-redeliveries", Queues::maxRedeliveries);
        scenarios.put("one-consumer-each", Queues::oneConsumerEach);
        scenarios.put("states", Queues::states);
        if (arguments.length > 0 && arguments[0].equals("router")) {
            scenarios.put("anycast", Direct::anycast);
            scenarios.put("multicast", Direct::multicast);
        }
        if (arguments.length < 4) {
            System.err.println("usage: Main router|broker HOST PORT PREFIX [SCENARIO...]");
            System.exit(2);
        }
        Peer peer = new Peer(arguments[1], Integer.parseInt(arguments[2]), arguments[3]);
        if (arguments.length > 4) {
            scenarios.keySet().retainAll(List.of(arguments).subList(4, arguments.length));
        }
        ExecutorService pool = Executors.newFixedThreadPool(4);
        scenarios.forEach((name, scenario) -> pool.execute(() -> {
            String told = "ok " + name;
            try {
                scenario.run(peer);
            } catch (Throwable thrown) {
                StringWriter trace = new StringWriter();
                thrown.printStackTrace(new PrintWriter(trace, true));
                told = "failed " + name + " " + trace.toString().replace("\t", "  ").replaceAll("\\R", "\t");
            }
            synchronized (System.out) {
                System.out.println(told);
            }
        }));
        pool.shutdown();
        pool.awaitTermination(10, java.util.concurrent.TimeUnit.MINUTES);
        System.exit(0); // whatever threads the client still has
    }

    private Main() {}
}
