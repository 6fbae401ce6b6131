package enmasse.interop;

import static enmasse.interop.Main.check;

import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.CoapHandler;
import org.eclipse.californium.core.CoapObserveRelation;
import org.eclipse.californium.core.CoapResponse;
import org.eclipse.californium.core.coap.MediaTypeRegistry;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.config.UdpConfig;

/** Eclipse Californium: a topic is observed and published to, in blocks too, and a queue is published to. */
final class Coap {
    static void run(int port) throws Exception {
        CoapConfig.register();
        UdpConfig.register();
        Configuration configuration = Configuration.createStandardWithoutFile();
        configuration.set(CoapConfig.MAX_RESOURCE_BODY_SIZE, 1 << 20);
        CoapEndpoint endpoint = CoapEndpoint.builder().setConfiguration(configuration).build();
        endpoint.start();
        BlockingQueue<byte[]> found = new LinkedBlockingQueue<>();
        CoapObserveRelation relation = client(endpoint, port, "events/%23").observeAndWait(new CoapHandler() {
            @Override
            public void onLoad(CoapResponse response) {
                if (response.advanced().isNotification() && response.getPayloadSize() > 0) {
                    found.add(response.getPayload());
                }
            }

            @Override
            public void onError() {
                found.add("an error".getBytes());
            }
        });
        check("observed", false, relation.isCanceled());
        byte[] large = new byte[50_000];
        for (int i = 0; i < large.length; i++) {
            large[i] = (byte) (i * 31 + (i >> 8));
        }
        for (byte[] body : List.of("small".getBytes(), large, "last".getBytes())) {
            CoapResponse response =
                client(endpoint, port, "events/a").put(body, MediaTypeRegistry.APPLICATION_OCTET_STREAM);
            check("outcome", "2.01", response.getCode().text);
            byte[] next = found.poll(60, TimeUnit.SECONDS);
            check("notification", true, next != null && Arrays.equals(body, next));
        }
        relation.proactiveCancel();
        for (int i = 0; i < 20; i++) {
            CoapResponse response = client(endpoint, port, "jobs").post("job " + i, MediaTypeRegistry.TEXT_PLAIN);
            check("outcome", "2.01", response.getCode().text);
        }
        check("no such address", "4.04", client(endpoint, port, "nowhere").post("x", 0).getCode().text);
        check("a queue", "4.05", client(endpoint, port, "jobs").get().getCode().text);
    }

    private static CoapClient client(CoapEndpoint endpoint, int port, String address) {
        CoapClient client = new CoapClient("coap://127.0.0.1:" + port + "/v1/" + address);
        client.setEndpoint(endpoint);
        client.setTimeout(60_000L);
        return client;
    }

    private Coap() {}
}
