import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A DefaultMQPushConsumer that reports each delivery and fails as often as it was told. */
final class Consumer {
    /** Where events go. */
    interface Sink {
        void emit(Map<String, Object> event);
    }

    private final String name;
    private final long fail;
    private final Sink sink;
    private final Map<String, Integer> deliveries = new ConcurrentHashMap<>();
    private final DefaultMQPushConsumer consumer;

    Consumer(Request r, Sink sink) throws Exception {
        name = r.text("name");
        fail = r.number("fail");
        this.sink = sink;
        consumer = Start.patiently(attempt -> started(r, attempt));
    }

    private DefaultMQPushConsumer started(Request r, int attempt) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(r.text("group"));
        consumer.setNamesrvAddr(r.text("namesrv"));
        consumer.setInstanceName(name + "-" + attempt);
        consumer.setPollNameServerInterval(2000);
        consumer.setHeartbeatBrokerInterval(5000);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMax(4);
        consumer.setConsumeThreadMin(4);
        if (r.flag("broadcast")) {
            consumer.setMessageModel(broadcasting());
        }
        consumer.subscribe(r.text("topic"), r.text("expr"));
        if (r.flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                context.setSuspendCurrentQueueTimeMillis(1000);
                return report(messages) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                report(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        return consumer;
    }

    /** The type lies in another package in each major version; the setter's own parameter tells which. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static <T> T broadcasting() throws Exception {
        Class type = DefaultMQPushConsumer.class.getMethod("getMessageModel").getReturnType();
        return (T) Enum.valueOf(type, "BROADCASTING");
    }

    private boolean report(List<MessageExt> messages) {
        boolean ok = true;
        for (MessageExt m : messages) {
            sink.emit(event(m));
            int n = deliveries.merge(m.getMsgId(), 1, Integer::sum);
            ok &= fail >= 0 && n > fail;
        }
        return ok;
    }

    private Map<String, Object> event(MessageExt m) {
        Map<String, Object> e = new LinkedHashMap<>();
        e.put("event", "msg");
        e.put("consumer", name);
        e.put("at", System.currentTimeMillis());
        e.put("topic", m.getTopic());
        e.put("tags", m.getTags());
        e.put("keys", m.getKeys());
        e.put("uniqKey", m.getProperty("UNIQ_KEY"));
        e.put("body", Base64.getEncoder().encodeToString(m.getBody()));
        e.put("flag", m.getFlag());
        e.put("sysFlag", m.getSysFlag());
        e.put("bornTimestamp", m.getBornTimestamp());
        e.put("bornHost", String.valueOf(m.getBornHost()));
        e.put("storeTimestamp", m.getStoreTimestamp());
        e.put("storeHost", String.valueOf(m.getStoreHost()));
        e.put("broker", m.getBrokerName());
        e.put("queueId", m.getQueueId());
        e.put("queueOffset", m.getQueueOffset());
        e.put("reconsumeTimes", m.getReconsumeTimes());
        e.put("props", new TreeMap<>(m.getProperties()));
        return e;
    }

    void close() {
        consumer.shutdown();
    }
}
