import org.apache.rocketmq.remoting.exception.RemotingTimeoutException;

/** Starts clients on a machine that may be too busy with starting JVMs to answer the first request in time. */
final class Start {
    private static final int ATTEMPTS = 4;

    /** Makes and starts one client; attempts have instance names of their own, since a failed one is remembered. */
    interface Attempt<T> {
        T run(int attempt) throws Exception;
    }

    private Start() { }

    static <T> T patiently(Attempt<T> start) throws Exception {
        for (int attempt = 1; ; attempt++) {
            try {
                return start.run(attempt);
            } catch (Exception e) {
                if (attempt == ATTEMPTS || !(e.getCause() instanceof RemotingTimeoutException)) {
                    throw e;
                }
            }
        }
    }
}
