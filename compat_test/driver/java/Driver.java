import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Drives producers and consumers of the RocketMQ Java client by JSON lines; the protocol is described in
 * the package comment of compat_test/driver. The same source is compiled against every client version,
 * so setters that only some versions have are called by reflection.
 */
public final class Driver {
    private final PrintStream out;
    private final Map<String, Producer> producers = new ConcurrentHashMap<>();
    private final Map<String, Consumer> consumers = new ConcurrentHashMap<>();

    private Driver(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        PrintStream lines = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err); // libraries print there; standard output carries the protocol alone
        Driver driver = new Driver(lines);
        driver.emit(Map.of("event", "ready"));
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String text = line;
            pool.execute(() -> driver.serve(text));
        }
        Runtime.getRuntime().halt(0); // the tests have gone: nothing to close in order
    }

    void emit(Map<String, Object> line) {
        String json = RemotingSerializable.toJson(line, false);
        synchronized (out) {
            out.print(json + "\n");
            out.flush();
        }
    }

    private void serve(String text) {
        Request request = new Request(text);
        try {
            answer(request, dispatch(request));
        } catch (Throwable e) {
            fail(request, e);
        }
    }

    private Map<String, Object> dispatch(Request r) throws Exception {
        switch (r.text("op")) {
            case "producer":
                producers.put(r.text("name"), new Producer(r));
                return Map.of();
            case "close-producer":
                producers.remove(r.text("name")).close();
                return Map.of();
            case "send":
                return producers.get(r.text("producer")).send(r);
            case "consumer":
                consumers.put(r.text("name"), new Consumer(r, this::emit));
                return Map.of();
            case "close-consumer":
                consumers.remove(r.text("name")).close();
                return Map.of();
            default:
                throw new IllegalArgumentException("unknown op " + r.text("op"));
        }
    }

    private void answer(Request r, Map<String, Object> result) {
        Map<String, Object> line = new LinkedHashMap<>(result);
        line.put("id", r.number("id"));
        line.put("ok", true);
        emit(line);
    }

    private void fail(Request r, Throwable e) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", r.number("id"));
        line.put("error", e.toString());
        line.put("code", -1);
        for (Throwable t = e; t != null; t = t.getCause()) {
            if (t instanceof MQBrokerException) {
                line.put("code", ((MQBrokerException) t).getResponseCode());
                line.put("remark", ((MQBrokerException) t).getErrorMessage());
                break;
            }
            if (t instanceof MQClientException && t.getCause() == null) {
                line.put("code", ((MQClientException) t).getResponseCode());
                line.put("remark", ((MQClientException) t).getErrorMessage());
            }
        }
        emit(line);
    }
}
