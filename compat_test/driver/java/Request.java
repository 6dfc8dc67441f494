import java.util.Base64;
import java.util.Map;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** One request line. A member that is missing reads as "", 0 or false. */
final class Request {
    private final Map<?, ?> members;

    Request(String json) {
        members = RemotingSerializable.fromJson(json, Map.class);
    }

    String text(String name) {
        Object v = members.get(name);
        return v == null ? "" : v.toString();
    }

    long number(String name) {
        Object v = members.get(name);
        return v instanceof Number ? ((Number) v).longValue() : 0;
    }

    boolean has(String name) {
        return members.get(name) != null;
    }

    boolean flag(String name) {
        return Boolean.TRUE.equals(members.get(name));
    }

    byte[] bytes(String name) {
        return Base64.getDecoder().decode(text(name));
    }

    Map<?, ?> map(String name) {
        Object v = members.get(name);
        return v instanceof Map ? (Map<?, ?>) v : Map.of();
    }
}
