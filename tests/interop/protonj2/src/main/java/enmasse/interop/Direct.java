package enmasse.interop;

import static enmasse.interop.Main.check;
import static enmasse.interop.Main.expect;
import static enmasse.interop.Stored.BY_HAND;
import static enmasse.interop.Stored.next;

import enmasse.interop.Main.Link;
import enmasse.interop.Main.Peer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryState;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientLinkRemotelyClosedException;

/** What routers carry from link to link. */
final class Direct {
    /** No credit without a receiver; with one, the sender learns the receiver's own outcome. */
    static void anycast(Peer peer) throws Exception {
        try (Link one = peer.connect(); Link other = peer.connect()) {
            Sender sender = one.connection().openSender(peer.address("anycast"));
            sender.openFuture().get(60, TimeUnit.SECONDS);
            check("no credit without a receiver", true, sender.trySend(Message.create("early")) == null);
            Receiver receiver = other.connection().openReceiver(peer.address("anycast"), BY_HAND);
            receiver.addCredit(2);
            Tracker accepted = sender.send(Message.create("accept"));
            Tracker rejected = sender.send(Message.create("reject"));
            Tracker released = sender.send(Message.create("release"));
            check("first", "accept", receiver.receive(60, TimeUnit.SECONDS).accept().<String>message().body());
            check("accepted", DeliveryState.Type.ACCEPTED, outcome(accepted));
            next(receiver).reject("interop:unwanted", "not this one");
            check("rejected", DeliveryState.Type.REJECTED, outcome(rejected));
            check("third is not sent beyond the credit", true, receiver.tryReceive() == null);
            check("and has no outcome", false, released.remoteSettled());
            receiver.addCredit(1);
            next(receiver).release();
            check("released", DeliveryState.Type.RELEASED, outcome(released));
        }
    }

    private static DeliveryState.Type outcome(Tracker tracker) throws Exception {
        tracker.awaitSettlement(60, TimeUnit.SECONDS);
        return tracker.remoteState().getType();
    }

    /** Everybody gets everything. */
    static void multicast(Peer peer) throws Exception {
        try (Link sending = peer.connect(); Link one = peer.connect(); Link other = peer.connect()) {
            List<Receiver> receivers = new ArrayList<>();
            for (Link link : List.of(one, other, other)) {
                Receiver receiver = link.connection().openReceiver(peer.address("multicast"));
                receiver.openFuture().get(60, TimeUnit.SECONDS);
                receivers.add(receiver);
            }
            Sender sender = sending.connection().openSender(peer.address("multicast"));
            List<Tracker> trackers = new ArrayList<>();
            for (int i = 0; i < 5; i++) {
                trackers.add(sender.send(Message.create(i)));
            }
            for (Receiver receiver : receivers) {
                for (int i = 0; i < 5; i++) {
                    check("body", i, next(receiver).<Integer>message().body());
                }
            }
            for (Tracker tracker : trackers) {
                check("outcome", DeliveryState.Type.ACCEPTED, outcome(tracker));
            }
        }
    }

    /** A request, and its answer to a dynamic address through a sender without one. */
    static void request(Peer peer) throws Exception {
        try (Link client = peer.connect(); Link server = peer.connect()) {
            Receiver requests = server.connection().openReceiver(peer.address("anycast"));
            requests.openFuture().get(60, TimeUnit.SECONDS);
            Receiver replies = client.connection().openDynamicReceiver();
            replies.openFuture().get(60, TimeUnit.SECONDS);
            Sender ask = client.connection().openSender(peer.address("anycast"));
            Tracker question = ask.send(Message.create("6 x 7").replyTo(replies.address()).correlationId("q"));
            Message<String> asked = next(requests).message(); // receiving accepts
            check("question", DeliveryState.Type.ACCEPTED, outcome(question));
            Sender answer = server.connection().openAnonymousSender();
            Message<String> answered = Message.create("42").to(asked.replyTo()).correlationId(asked.correlationId());
            Tracker sent = answer.send(answered);
            Message<String> reply = next(replies).message();
            check("answer", DeliveryState.Type.ACCEPTED, outcome(sent));
            check("reply", "42", reply.body());
            check("correlation", "q", reply.correlationId());
        }
    }

    /** An address nobody has defined is refused, and the connection goes on. */
    static void unknown(Peer peer) throws Exception {
        try (Link link = peer.connect()) {
            var sender = expect(
                    ClientLinkRemotelyClosedException.class,
                    () -> link.connection().openSender(peer.address("nowhere")).openFuture().get(60, TimeUnit.SECONDS));
            check("sender", "amqp:not-found", sender.getErrorCondition().condition());
            var receiver = expect(
                    ClientLinkRemotelyClosedException.class,
                    () -> link.connection().openReceiver(peer.address("nowhere")).openFuture().get(60, TimeUnit.SECONDS));
            check("receiver", "amqp:not-found", receiver.getErrorCondition().condition());
            Stored.send(link.connection().openSender(peer.address("queue")), "still here");
            Receiver queue = link.connection().openReceiver(peer.address("queue"));
            check("the connection goes on", "still here", next(queue).<String>message().body());
            queue.close();
        }
    }

    private Direct() {}
}
