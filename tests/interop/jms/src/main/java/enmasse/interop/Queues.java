package enmasse.interop;

import static enmasse.interop.Main.LIMIT;
import static enmasse.interop.Main.check;
import static enmasse.interop.Main.contains;
import static enmasse.interop.Main.expect;
import static enmasse.interop.Main.text;
import static enmasse.interop.Main.texts;

import enmasse.interop.Main.Peer;
import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Queues: selectors, browsers, delays, acknowledgement. */
final class Queues {

    static void delay(Peer peer) throws Exception {
        try (Connection connection = peer.connect(); JMSContext context = peer.context()) {
            Session session = connection.createSession();
            Destination[] destinations = {
                session.createQueue(peer.address("delay")), session.createTopic(peer.address("delay-topic"))
            };
            for (Destination destination : destinations) {
                for (long delay = 600; !delayed(session, context, destination, delay); delay *= 4) {
                    System.err.println("all was sent later than " + delay + " ms: the delay is longer now");
                }
            }
        }
    }

    /** Whether the order was judged: a busy machine may take longer than the delay to send what is to come first. */
    private static boolean delayed(Session session, JMSContext context, Destination destination, long delay)
            throws JMSException {
        try (MessageConsumer consumer = session.createConsumer(destination)) {
            long sent = System.currentTimeMillis();
            MessageProducer fixed = session.createProducer(destination);
            fixed.setDeliveryDelay(delay);
            fixed.send(session.createTextMessage("later"));
            MessageProducer anonymous = session.createProducer(null);
            anonymous.setDeliveryDelay(delay);
            anonymous.send(destination, session.createTextMessage("later"));
            context.createProducer().setDeliveryDelay(delay).send(destination, "later");
            fixed.setDeliveryDelay(0);
            fixed.send(session.createTextMessage("at once"));
            boolean inTime = System.currentTimeMillis() < sent + delay;
            List<String> found = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                Message message = consumer.receive(LIMIT);
                found.add(text(message));
                boolean early = System.currentTimeMillis() < sent + delay || message.getJMSDeliveryTime() < sent + delay;
                if (text(message).equals("later") && early) {
                    throw new AssertionError("too early: " + message.getJMSDeliveryTime() + ", sent at " + sent);
                }
            }
            if (inTime) {
                check("first", "at once", found.get(0));
            }
            Collections.sort(found);
            check("all", List.of("at once", "later", "later", "later"), found);
            return inTime;
        }
    }

    static void simpleProducer(Peer peer) throws Exception {
        try (JMSContext context = peer.context(); JMSContext other = peer.context()) {
            Destination queue = context.createQueue(peer.address("simple"));
            Destination topic = context.createTopic(peer.address("simple-topic"));
            JMSConsumer subscriber = other.createConsumer(topic);
            JMSConsumer below = other.createConsumer(other.createTopic(peer.address("simple-topic/below")));
            for (int i = 0; i < 10; i++) {
                context.createProducer().send(queue, "queue " + i);
                context.createProducer().send(topic, "topic " + i);
                context.createProducer().send(context.createTopic(peer.address("simple-topic/below")), "below " + i);
            }
            JMSConsumer consumer = other.createConsumer(queue);
            for (int i = 0; i < 10; i++) {
                check("queue", "queue " + i, consumer.receiveBody(String.class, LIMIT));
                check("topic", "topic " + i, subscriber.receiveBody(String.class, LIMIT));
                check("below", "below " + i, below.receiveBody(String.class, LIMIT));
            }
        }
    }

    static void unknown(Peer peer) throws Exception {
        try (JMSContext context = peer.context()) {
            for (Destination nowhere : List.of(
                context.createQueue(peer.address("nowhere")), context.createTopic(peer.address("nowhere")))) {
                expect(JMSRuntimeException.class, "to " + nowhere, () -> context.createProducer().send(nowhere, "?"));
            }
        }
    }

    private static Message coloured(Session session, String body, String colour) throws JMSException {
        Message message = session.createTextMessage(body);
        message.setStringProperty("colour", colour);
        return message;
    }

    static void selector(Peer peer) throws Exception {
        try (Connection connection = peer.connect(); Connection other = peer.connect()) {
            Session session = connection.createSession();
            Queue queue = session.createQueue(peer.address("selector"));
            MessageProducer producer = session.createProducer(queue);
            for (int i = 0; i < 10; i++) {
                producer.send(coloured(session, "message " + i, i % 2 == 0 ? "red" : "blue"));
            }
            Session far = other.createSession();
            MessageConsumer reds = far.createConsumer(queue, "colour = 'red'");
            check("red ones", List.of("message 0", "message 2", "message 4", "message 6", "message 8"), texts(reds, 5));
            producer.send(coloured(session, "blue while red is wanted", "blue"));
            producer.send(coloured(session, "red while red is wanted", "red"));
            check("one more", List.of("red while red is wanted"), texts(reds, 1));
            MessageConsumer greens = far.createConsumer(queue, "colour = 'green'");
            if (greens.receiveNoWait() != null || reds.receiveNoWait() != null) {
                throw new AssertionError("a selector took what is not its own");
            }
            expect(InvalidSelectorException.class, "no selector", () -> far.createConsumer(queue, "colour = = 'red'"));
            reds.close();
            MessageConsumer all = session.createConsumer(queue);
            List<String> rest = texts(all, 6);
            check("what was left", List.of("message 1", "message 3", "message 5", "message 7", "message 9",
                "blue while red is wanted"), rest);
        }
    }

    static void browser(Peer peer) throws Exception {
        try (Connection connection = peer.connect()) {
            Session session = connection.createSession();
            Queue queue = session.createQueue(peer.address("browser"));
            MessageProducer producer = session.createProducer(queue);
            List<String> bodies = new ArrayList<>();
            for (int i = 0; i < 6; i++) {
                producer.send(coloured(session, "message " + i, i % 3 == 0 ? "red" : "blue"));
                bodies.add("message " + i);
            }
            for (int i = 0; i < 2; i++) {
                check("all", bodies, seen(session.createBrowser(queue)));
                check("red", List.of("message 0", "message 3"), seen(session.createBrowser(queue, "colour = 'red'")));
                check("none", List.of(), seen(session.createBrowser(queue, "colour = 'green'")));
            }
            check("nothing was taken", bodies, texts(session.createConsumer(queue), 6));
        }
    }

    private static List<String> seen(QueueBrowser browser) throws JMSException {
        List<String> found = new ArrayList<>();
        for (Object message : Collections.list(browser.getEnumeration())) {
            found.add(text((Message) message));
        }
        browser.close();
        return found;
    }

    /** What a session sends and receives takes effect with its commit; after a rollback it comes again. */
    static void transacted(Peer peer) throws Exception {
        try (Connection connection = peer.connect()) {
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            Queue queue = session.createQueue(peer.address("transacted"));
            MessageProducer producer = session.createProducer(queue);
            MessageConsumer consumer = session.createConsumer(queue);
            producer.send(session.createTextMessage("never"));
            session.rollback();
            producer.send(session.createTextMessage("first"));
            producer.send(session.createTextMessage("second"));
            session.commit();
            check("what was committed", List.of("first", "second"), texts(consumer, 2));
            producer.send(session.createTextMessage("never"));
            session.rollback();
            Message again = consumer.receive(LIMIT);
            check("the first again", "first", text(again));
            check("that it comes again", true, again.getJMSRedelivered());
            check("how often", 2, again.getIntProperty("JMSXDeliveryCount"));
            check("the second again", List.of("second"), texts(consumer, 1));
            producer.send(session.createTextMessage("third"));
            session.commit();
            check("after them", List.of("third"), texts(consumer, 1));
            consumer.close();
            session.commit();
            Session plain = connection.createSession();
            plain.createProducer(queue).send(plain.createTextMessage("without"));
            check("what is there", List.of("without"), texts(plain.createConsumer(queue), 1));
        }
    }

    /** A transaction takes two queues, a topic and a temporary queue: all of them, or none. */
    static void transactedAcross(Peer peer) throws Exception {
        try (Connection connection = peer.connect(); Connection other = peer.connect()) {
            Session plain = other.createSession();
            Queue from = plain.createQueue(peer.address("across-from"));
            Queue to = plain.createQueue(peer.address("across-to"));
            Topic topic = plain.createTopic(peer.address("across-topic"));
            MessageConsumer moved = plain.createConsumer(to);
            MessageConsumer heard = plain.createConsumer(topic);
            TemporaryQueue temporary = plain.createTemporaryQueue();
            MessageConsumer answered = plain.createConsumer(temporary);
            MessageProducer feed = plain.createProducer(from);
            for (int i = 0; i < 4; i++) {
                feed.send(plain.createTextMessage("message " + i));
            }
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            MessageConsumer consumer = session.createConsumer(from);
            List<MessageProducer> producers = List.of(
                session.createProducer(to), session.createProducer(topic), session.createProducer(temporary));
            for (int i = 0; i < 8; i++) { // each comes twice: the first time it is rolled back
                Message message = consumer.receive(LIMIT);
                check("the next", "message " + i / 2, text(message));
                for (MessageProducer producer : producers) {
                    producer.send(session.createTextMessage(text(message)));
                }
                if (i % 2 == 0) {
                    session.rollback();
                } else {
                    session.commit();
                }
            }
            List<String> all = List.of("message 0", "message 1", "message 2", "message 3");
            check("what was moved", all, texts(moved, 4));
            check("what was published", all, texts(heard, 4));
            check("what was answered", all, texts(answered, 4));
            for (MessageConsumer each : List.of(moved, heard, answered)) {
                check("nothing more", true, each.receiveNoWait() == null);
            }
            check("nothing left", true, consumer.receiveNoWait() == null);
        }
    }

    /** With a prefetch of nothing, what waits is found by the first look, each time. */
    static void pull(Peer peer) throws Exception {
        try (Connection connection = peer.connect("jms.prefetchPolicy.all=0"); Connection other = peer.connect()) {
            Session session = connection.createSession();
            Session far = other.createSession();
            Queue queue = session.createQueue(peer.address("pull"));
            MessageProducer producer = far.createProducer(queue);
            for (int i = 0; i < 40; i++) {
                MessageConsumer consumer = session.createConsumer(queue);
                if (consumer.receiveNoWait() != null) {
                    throw new AssertionError("something came from nowhere");
                }
                if (i % 2 == 0) {
                    consumer.close();
                }
                producer.send(far.createTextMessage("message " + i));
                if (i % 2 == 0) {
                    consumer = session.createConsumer(queue);
                }
                check("at once", "message " + i, text(consumer.receiveNoWait()));
                consumer.close();
            }
        }
    }

    static void recover(Peer peer) throws Exception {
        try (Connection connection = peer.connect()) {
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            Queue queue = session.createQueue(peer.address("recover"));
            MessageProducer producer = session.createProducer(queue);
            for (int i = 0; i < 3; i++) {
                producer.send(session.createTextMessage("message " + i));
            }
            MessageConsumer consumer = session.createConsumer(queue);
            for (int round = 1; round <= 3; round++) {
                Message last = null;
                for (int i = 0; i < 3; i++) {
                    last = consumer.receive(LIMIT);
                    check("in order", "message " + i, text(last));
                    check("redelivered", round > 1, last.getJMSRedelivered());
                    check("deliveries", round, last.getIntProperty("JMSXDeliveryCount"));
                }
                if (round < 3) {
                    session.recover();
                } else {
                    last.acknowledge();
                }
            }
            consumer.close();
            try (MessageConsumer left = session.createConsumer(queue)) {
                if (left.receiveNoWait() != null) {
                    throw new AssertionError("it was acknowledged");
                }
            }
        }
    }

    /** A client that has had enough of a message: it goes to the queue's dead letter, and the rest goes on. */
    static void maxRedeliveries(Peer peer) throws Exception {
        try (Connection connection = peer.connect("jms.redeliveryPolicy.maxRedeliveries=2")) {
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            Queue queue = session.createQueue(peer.address("redelivered"));
            MessageProducer producer = session.createProducer(queue);
            producer.send(session.createTextMessage("bad"));
            producer.send(session.createTextMessage("good"));
            MessageConsumer consumer = session.createConsumer(queue);
            for (int i = 0; i < 3; i++) {
                check("delivered", "bad", text(consumer.receive(LIMIT)));
                session.recover();
            }
            Message good = consumer.receive(LIMIT);
            check("the next", "good", text(good));
            good.acknowledge();
            MessageConsumer dead = session.createConsumer(session.createQueue(peer.address("dead")));
            Message bad = dead.receive(LIMIT);
            check("the dead one", "bad", text(bad));
            bad.acknowledge();
        }
    }

    /** A consumer for each message, as Spring's JmsTemplate makes them: what each has prefetched comes at once. */
    static void oneConsumerEach(Peer peer) throws Exception {
        try (Connection connection = peer.connect()) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue(peer.address("each"));
            MessageProducer producer = session.createProducer(queue);
            for (int i = 0; i < 30; i++) {
                producer.send(session.createTextMessage("message " + i));
            }
        }
        for (int i = 0; i < 30; i++) {
            try (Connection connection = peer.connect()) {
                Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
                Queue queue = session.createQueue(peer.address("each"));
                try (MessageConsumer consumer = session.createConsumer(queue)) {
                    Message message = consumer.receive(LIMIT);
                    check("in order", "message " + i, text(message));
                    check("deliveries", 1, message.getIntProperty("JMSXDeliveryCount"));
                }
            }
        }
    }

    /** Outcomes that a client states of one message: released is no attempt, failed is one, accepted ends it. */
    static void states(Peer peer) throws Exception {
        try (Connection connection = peer.connect()) {
            Session session = connection.createSession(101); // ActiveMQ's and Qpid's individual acknowledgement
            for (Destination destination : List.of(
                    session.createQueue(peer.address("states")), session.createTopic(peer.address("states-topic")))) {
                try (MessageConsumer consumer = session.createConsumer(destination)) {
                    session.createProducer(destination).send(session.createTextMessage("again and again"));
                    int[][] steps = {{3, 1}, {4, 1}, {3, 2}, {1, 2}}; // released, failed, released, accepted; deliveries
                    for (int[] step : steps) {
                        Message message = consumer.receive(LIMIT);
                        check("the message", "again and again", text(message));
                        check("deliveries", step[1], message.getIntProperty("JMSXDeliveryCount"));
                        message.setIntProperty("JMS_AMQP_ACK_TYPE", step[0]);
                        message.acknowledge();
                    }
                    if (consumer.receiveNoWait() != null) {
                        throw new AssertionError("it was accepted");
                    }
                }
            }
        }
    }

    private Queues() {}
}
