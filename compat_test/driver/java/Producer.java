import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;

/** A DefaultMQProducer. Nothing is sent twice by the client itself unless "retries" says so. */
final class Producer {
    private static final MessageQueueSelector BY_HASH =
        (queues, msg, key) -> queues.get(Math.floorMod(key.hashCode(), queues.size()));

    private final DefaultMQProducer producer;

    Producer(Request r) throws Exception {
        producer = Start.patiently(attempt -> started(r, attempt));
    }

    private static DefaultMQProducer started(Request r, int attempt) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(r.text("group"));
        producer.setNamesrvAddr(r.text("namesrv"));
        producer.setInstanceName(r.text("name") + "-" + attempt);
        producer.setPollNameServerInterval(2000);
        producer.setHeartbeatBrokerInterval(5000);
        producer.setSendMsgTimeout((int) r.number("timeoutMs"));
        producer.setRetryTimesWhenSendFailed((int) r.number("retries"));
        producer.setRetryTimesWhenSendAsyncFailed((int) r.number("retries"));
        producer.start();
        return producer;
    }

    Map<String, Object> send(Request r) throws Exception {
        Message msg = message(r);
        MessageQueue queue = r.has("queue") ? new MessageQueue(r.text("topic"), r.text("broker"), (int) r.number("queue")) : null;
        String order = r.text("orderKey");
        switch (r.text("mode")) {
            case "oneway":
                oneway(msg, queue, order);
                return Map.of("uniqKey", String.valueOf(msg.getProperty("UNIQ_KEY")));
            case "async":
                return describe(async(msg, queue, order), msg);
            default:
                return describe(sync(msg, queue, order), msg);
        }
    }

    private SendResult sync(Message msg, MessageQueue queue, String order) throws Exception {
        if (queue != null) {
            return producer.send(msg, queue);
        }
        return order.isEmpty() ? producer.send(msg) : producer.send(msg, BY_HASH, order);
    }

    private SendResult async(Message msg, MessageQueue queue, String order) throws Exception {
        CompletableFuture<SendResult> done = new CompletableFuture<>();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                done.complete(result);
            }

            @Override
            public void onException(Throwable e) {
                done.completeExceptionally(e);
            }
        };
        if (queue != null) {
            producer.send(msg, queue, callback);
        } else if (order.isEmpty()) {
            producer.send(msg, callback);
        } else {
            producer.send(msg, BY_HASH, order, callback);
        }
        try {
            return done.get();
        } catch (ExecutionException e) {
            throw e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
        }
    }

    private void oneway(Message msg, MessageQueue queue, String order) throws Exception {
        if (queue != null) {
            producer.sendOneway(msg, queue);
        } else if (order.isEmpty()) {
            producer.sendOneway(msg);
        } else {
            producer.sendOneway(msg, BY_HASH, order);
        }
    }

    private static Message message(Request r) throws Exception {
        Message msg = new Message(r.text("topic"), r.text("tags"), r.text("keys"), (int) r.number("flag"), r.bytes("body"), true);
        for (Map.Entry<?, ?> p : r.map("props").entrySet()) {
            // past the client's own check of reserved names, which differs by version
            MessageAccessor.putProperty(msg, p.getKey().toString(), p.getValue().toString());
        }
        if (r.number("level") > 0) {
            msg.setDelayTimeLevel((int) r.number("level"));
        }
        timer(msg, "setDeliverTimeMs", "TIMER_DELIVER_MS", r.number("deliverMs"));
        timer(msg, "setDelayTimeMs", "TIMER_DELAY_MS", r.number("delayMs"));
        timer(msg, "setDelayTimeSec", "TIMER_DELAY_SEC", r.number("delaySec"));
        return msg;
    }

    /** Uses the client's own setter where it has one, else the property that the setter stands for. */
    private static void timer(Message msg, String setter, String property, long value) throws Exception {
        if (value == 0) {
            return;
        }
        try {
            Message.class.getMethod(setter, long.class).invoke(msg, value);
        } catch (NoSuchMethodException e) {
            MessageAccessor.putProperty(msg, property, Long.toString(value));
        }
    }

    private static Map<String, Object> describe(SendResult s, Message msg) {
        Map<String, Object> m = new LinkedHashMap<>();
        m.put("status", s.getSendStatus().name());
        m.put("uniqKey", msg.getProperty("UNIQ_KEY"));
        m.put("msgId", s.getMsgId());
        m.put("offsetMsgId", s.getOffsetMsgId());
        m.put("broker", s.getMessageQueue().getBrokerName());
        m.put("queueId", s.getMessageQueue().getQueueId());
        m.put("queueOffset", s.getQueueOffset());
        m.put("transactionId", s.getTransactionId());
        m.put("regionId", s.getRegionId());
        return m;
    }

    void close() {
        producer.shutdown();
    }
}
