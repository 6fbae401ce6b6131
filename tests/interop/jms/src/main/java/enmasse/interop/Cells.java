package enmasse.interop;

import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * {@code Cells HOST PORT TLS_PORT CA SOURCE}: connections of users from the address SOURCE, by the commands of rhea/cells.js on standard input. An address that begins
 * with {@code topic} or {@code multicast} is a topic, others are queues. A refusal is told by the class of its exception.
 */
public final class Cells {
    private static final Map<String, Cells> SESSIONS = new HashMap<>();

    private final CompletableFuture<String> gone = new CompletableFuture<>();
    private final JmsConnectionFactory factory;
    private Connection connection;
    private MessageConsumer consumer;

    private Cells(String url, String user, String password) {
        factory = new JmsConnectionFactory(url);
        if (!user.equals("-")) {
            factory.setUsername(user);
            factory.setPassword(password);
        }
    }

    private String open(String operation, String address, String body) {
        try {
            connection = factory.createConnection();
            connection.setExceptionListener(thrown -> gone.complete(thrown.getClass().getSimpleName()));
            connection.start();
            Session session = connection.createSession();
            boolean many = address.startsWith("topic") || address.startsWith("multicast");
            Destination destination = many ? session.createTopic(address) : session.createQueue(address);
            if (operation.equals("send")) {
                session.createProducer(destination).send(session.createTextMessage(body));
                return "accepted";
            }
            consumer = session.createConsumer(destination);
            return "attached";
        } catch (JMSException refusal) {
            return refusal.getClass().getSimpleName();
        }
    }

    private String close() throws JMSException {
        StringJoiner bodies = new StringJoiner(",", "[", "]");
        if (connection != null) {
            for (String body; consumer != null && (body = next(1)) != null;) {
                bodies.add('"' + body + '"');
            }
            connection.close();
        }
        return bodies.toString();
    }

    private String next(long patience) {
        try {
            var message = consumer.receive(patience);
            return message == null ? null : message.getBody(String.class);
        } catch (JMSException ended) {
            return null;
        }
    }

    /** {@code store}: of PKCS 12, for a login by certificate over TLS; {@code token}: for one by XOAUTH2. */
    private static String url(String[] arguments, String token, String store) {
        String limits = "&jms.requestTimeout=" + Main.LIMIT + "&jms.sendTimeout=" + Main.LIMIT + "&jms.connectTimeout="
            + Main.LIMIT + "&jms.closeTimeout=" + Main.LIMIT + "&transport.localAddress=" + arguments[4]
            + (token.equals("-") ? "" : "&amqp.saslMechanisms=XOAUTH2");
        if (store.equals("-")) {
            return "amqp://" + arguments[0] + ":" + arguments[1] + "?" + limits.substring(1);
        }
        return "amqps://" + arguments[0] + ":" + arguments[2] + "?transport.keyStoreLocation=" + store
            + "&transport.keyStorePassword=password&transport.keyStoreType=PKCS12&transport.trustAll=true"
            + "&transport.verifyHost=false" + limits;
    }

    private static String obey(String[] arguments, String[] words) throws Exception {
        if (words[0].equals("open")) {
            String secret = words[4].equals("-") ? words[3] : words[4];
            Cells session = new Cells(url(arguments, words[4], words[7]), words[2], secret);
            SESSIONS.put(words[1], session);
            return session.open(words[8], words[9], words[10]);
        }
        Cells session = SESSIONS.get(words[1]);
        return switch (words[0]) {
            case "take" -> session.next(Main.LIMIT);
            case "gone" -> session.gone.get(Main.LIMIT, TimeUnit.MILLISECONDS);
            default -> session.close();
        };
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null;) {
            System.out.println(obey(arguments, line.split(" ")));
        }
        System.exit(0); // whatever threads the client still has
    }
}
