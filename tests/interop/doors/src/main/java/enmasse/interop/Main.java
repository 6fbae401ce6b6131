package enmasse.interop;

/** {@code Main coap|stomp PORT}: clients of other families at a gateway. Exit status 0 if all held. */
public final class Main {
    static void check(String what, Object expected, Object actual) {
        if (!expected.equals(actual)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + actual);
        }
    }

    public static void main(String[] arguments) {
        int port = Integer.parseInt(arguments[1]);
        try {
            if (arguments[0].equals("coap")) {
                Coap.run(port);
            } else {
                Stomp.run(port);
            }
            System.exit(0); // whatever threads the client still has
        } catch (Throwable thrown) {
            thrown.printStackTrace();
            System.exit(1);
        }
    }

    private Main() {}
}
