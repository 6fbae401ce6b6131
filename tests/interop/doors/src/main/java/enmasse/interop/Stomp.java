package enmasse.interop;

import static enmasse.interop.Main.check;

import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.core.buffer.Buffer;
import io.vertx.ext.stomp.Frame;
import io.vertx.ext.stomp.StompClient;
import io.vertx.ext.stomp.StompClientConnection;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The STOMP client of Eclipse Vert.x: receipts, acknowledgements of each message, transactions and selectors. */
final class Stomp {
    static void run(int port) throws Exception {
        Vertx vertx = Vertx.vertx();
        StompClientConnection sender = of(StompClient.create(vertx).connect(port, "127.0.0.1"));
        StompClientConnection receiver = of(StompClient.create(vertx).connect(port, "127.0.0.1"));
        BlockingQueue<Frame> found = new LinkedBlockingQueue<>();
        of(receiver.subscribe("/queue/vertx", headers("ack", "client-individual", "id", "0"), found::add));
        List<Future<Frame>> receipts = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            receipts.add(sender.send("/queue/vertx", headers("kind", "a"), Buffer.buffer("body " + i)));
        }
        for (Future<Frame> each : receipts) {
            of(each);
        }
        for (int i = 0; i < 100; i++) {
            Frame frame = next(found);
            check("body", "body " + i, frame.getBodyAsString());
            check("property", "a", frame.getHeader("kind"));
            of(receiver.ack(frame.getAck()));
        }
        of(sender.beginTX("one"));
        of(sender.send("/queue/vertx", headers("transaction", "one"), Buffer.buffer("never")));
        of(sender.abort("one"));
        of(sender.beginTX("two"));
        for (int i = 0; i < 3; i++) {
            of(sender.send("/queue/vertx", headers("transaction", "two"), Buffer.buffer("transacted " + i)));
        }
        check("before the commit", true, found.isEmpty());
        of(sender.commit("two"));
        of(receiver.beginTX("three"));
        for (int i = 0; i < 3; i++) {
            Frame frame = next(found);
            check("body", "transacted " + i, frame.getBodyAsString());
            of(receiver.ack(frame.getAck(), "three"));
        }
        of(receiver.commit("three"));
        BlockingQueue<Frame> heard = new LinkedBlockingQueue<>();
        of(receiver.subscribe("/topic/events", headers("id", "1", "selector", "kind = 'b'"), heard::add));
        for (String kind : List.of("a", "b")) {
            of(sender.send("/topic/events", headers("kind", kind), Buffer.buffer(kind)));
        }
        check("selected", "b", next(heard).getBodyAsString());
        of(sender.disconnect());
        of(receiver.disconnect());
    }

    /** The client adds to what it is given. */
    private static Map<String, String> headers(String... pairs) {
        Map<String, String> made = new HashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            made.put(pairs[i], pairs[i + 1]);
        }
        return made;
    }

    private static Frame next(BlockingQueue<Frame> found) throws Exception {
        Frame frame = found.poll(60, TimeUnit.SECONDS);
        if (frame == null) {
            throw new AssertionError("no message within 60 s");
        }
        return frame;
    }

    private static <T> T of(Future<T> future) throws Exception {
        return future.toCompletionStage().toCompletableFuture().get(60, TimeUnit.SECONDS);
    }

    private Stomp() {}
}
