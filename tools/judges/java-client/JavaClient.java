import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Apache's client as a judge: a request a line on stdin, an answer a line on stdout, both JSON, as the programs of the other clients. */
public final class JavaClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final String servers;
    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private Admin admin;
    private Member member;

    private JavaClient(String servers) {
        this.servers = servers;
    }

    public static void main(String[] arguments) throws Exception {
        JavaClient client = new JavaClient(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("ok", client.answer(JSON.readTree(line)));
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    private Object answer(JsonNode r) throws Exception {
        switch (r.get("do").asText()) {
            case "write": return write(r);
            case "read": return read(r);
            case "init": return init(r);
            case "join": member = new Member(r); return null;
            case "seen": return member.seen();
            case "leave": member.leave(); return null;
            default: break;
        }
        return r.has("name") ? transact(r, producers.get(r.get("name").asText())) : administer(r);
    }

    private Map<String, Object> config(Object... pairs) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", servers);
        for (int at = 0; at < pairs.length; at += 2) {
            config.put((String) pairs[at], pairs[at + 1]);
        }
        return config;
    }

    private KafkaProducer<String, String> producer(Object... pairs) {
        return new KafkaProducer<>(config(pairs), new StringSerializer(), new StringSerializer());
    }

    private Object write(JsonNode r) throws Exception {
        try (KafkaProducer<String, String> producer = producer("compression.type", r.get("codec").asText(), "linger.ms", 20)) {
            List<Future<?>> sent = new ArrayList<>();
            for (int number = 0; number < r.get("count").asInt(); number++) {
                String value = r.get("prefix").asText() + "-" + number + "-" + "x".repeat(50);
                sent.add(producer.send(new ProducerRecord<>(r.get("topic").asText(), "key-" + number, value)));
            }
            for (Future<?> one : sent) {
                one.get();
            }
        }
        return null;
    }

    private Object read(JsonNode r) {
        String level = r.path("committed").asBoolean() ? "read_committed" : "read_uncommitted";
        List<TopicPartition> places = new ArrayList<>();
        for (JsonNode topic : r.get("topics")) {
            for (int number = 0; number < r.get("partitions").asInt(); number++) {
                places.add(new TopicPartition(topic.asText(), number));
            }
        }
        List<List<Object>> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config("isolation.level", level), new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(places);
            consumer.seekToBeginning(places);
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (found.size() < r.get("count").asInt()) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(found.size() + " records came");
                }
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofSeconds(1))) {
                    found.add(Arrays.asList(one.topic(), one.partition(), one.offset(), one.key(), one.value()));
                }
            }
        }
        return found;
    }

    private Object init(JsonNode r) {
        KafkaProducer<String, String> producer =
            producer("transactional.id", r.get("id").asText(), "transaction.timeout.ms", r.get("timeout_ms").asInt());
        producers.put(r.get("name").asText(), producer);
        producer.initTransactions();
        return null;
    }

    private Object transact(JsonNode r, KafkaProducer<String, String> producer) throws Exception {
        switch (r.get("do").asText()) {
            case "begin":
                producer.beginTransaction();
                return null;
            case "send":
                producer.send(new ProducerRecord<>(r.get("topic").asText(), r.get("value").asText())).get();
                return null;
            case "offsets":
                producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(r.get("topic").asText(), 0), new OffsetAndMetadata(r.get("offset").asLong())),
                    new ConsumerGroupMetadata(r.get("group").asText(), -1, "", Optional.empty()));
                return null;
            case "commit":
                producer.commitTransaction();
                return null;
            default:
                producer.abortTransaction();
                return null;
        }
    }

    private Object administer(JsonNode r) throws Exception {
        if (admin == null) {
            admin = Admin.create(config());
        }
        String topic = r.path("topic").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        switch (r.get("do").asText()) {
            case "create":
                admin.createTopics(List.of(new NewTopic(topic, r.get("partitions").asInt(), (short) 1))).all().get();
                return null;
            case "describe":
                return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            case "topics":
                return new TreeSet<>(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
            case "alter":
                ConfigEntry entry = new ConfigEntry(r.get("key").asText(), r.get("value").asText());
                admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
                return null;
            case "config":
                return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(r.get("key").asText()).value();
            case "delete_records":
                RecordsToDelete before = RecordsToDelete.beforeOffset(r.get("offset").asLong());
                admin.deleteRecords(Map.of(new TopicPartition(topic, 0), before)).all().get();
                return null;
            case "groups":
                TreeSet<String> names = new TreeSet<>();
                admin.listGroups().all().get().forEach(one -> names.add(one.groupId()));
                return names;
            case "group":
                String group = r.get("group").asText();
                return admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState().toString();
            case "delete":
                admin.deleteTopics(List.of(topic)).all().get();
                return null;
            default:
                throw new IllegalArgumentException("unknown request " + r);
        }
    }

    /** A member of a group on a thread of its own; it commits as it goes. */
    private final class Member {
        private final List<String> values = new ArrayList<>();
        private List<Integer> assigned = List.of();
        private final Thread thread;
        private volatile boolean isOver;

        Member(JsonNode r) {
            thread = new Thread(() -> run(r.get("group").asText(), r.get("topic").asText()));
            thread.start();
        }

        private void run(String group, String topic) {
            Map<String, Object> config = config(
                "group.id", group, "auto.offset.reset", "earliest", "auto.commit.interval.ms", 100,
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor",
                "session.timeout.ms", 10_000, "heartbeat.interval.ms", 300);
            try (KafkaConsumer<String, String> consumer =
                    new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of(topic));
                while (!isOver) {
                    var records = consumer.poll(Duration.ofMillis(100));
                    synchronized (this) {
                        records.forEach(one -> values.add(one.value()));
                        assigned = new ArrayList<>(new TreeSet<>(consumer.assignment().stream().map(TopicPartition::partition).toList()));
                    }
                }
            }
        }

        synchronized Object seen() {
            return Map.of("values", new ArrayList<>(values), "assigned", assigned);
        }

        void leave() throws InterruptedException {
            isOver = true;
            thread.join();
        }
    }
}
