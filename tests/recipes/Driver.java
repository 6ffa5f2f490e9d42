import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.Date;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.streams.TopologyTestDriver;
import org.springframework.kafka.core.KafkaOperations;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.mock.MockProducerFactory;

/**
 * Runs the other side of recipes: java Driver CASE=FILE ..., with the properties of the recipe in the file.
 * Prints "= CASE TOPIC" for each case, then a line for each header: name, and value in Base64 or null.
 */
public class Driver {
    static final long DUE_MS = 1_795_276_800_000L;

    public static void main(String[] args) throws Exception {
        for (String each : args) {
            var words = each.split("=", 2);
            System.out.print("= " + words[0] + " ");
            var recipe = new Properties();
            if (!words[1].isEmpty()) {
                recipe.load(new StringReader(Files.readString(Path.of(words[1]))));
            }
            switch (words[0]) {
                case "constant", "instant" -> connect(recipe, row(Schema.OPTIONAL_INT64_SCHEMA, DUE_MS));
                case "timestamp" -> connect(recipe, row(Timestamp.builder().optional().build(), new Date(DUE_MS)));
                case "null" -> connect(recipe, row(Schema.OPTIONAL_INT64_SCHEMA, null));
                case "outbox" -> connect(recipe, change(DUE_MS));
                case "outbox-null" -> connect(recipe, change(null));
                case "streams" -> streams();
                case "unless" -> unless();
                case "spring" -> spring(Retries::later, null);
                case "spring-again" -> spring(Retries::later, "2");
                case "spring-fixed" -> spring(FixedWait::later, null);
                default -> throw new IllegalArgumentException(words[0]);
            }
        }
    }

    static Struct row(Schema due, Object value) {
        var schema = SchemaBuilder.struct().field("id", Schema.INT64_SCHEMA).field("due", due).build();
        return new Struct(schema).put("id", 42L).put("due", value);
    }

    /** A row that was inserted into an outbox table, as Debezium reports it. */
    static Struct change(Long due) {
        var row = SchemaBuilder.struct().optional()
            .field("id", Schema.STRING_SCHEMA)
            .field("aggregatetype", Schema.STRING_SCHEMA)
            .field("aggregateid", Schema.STRING_SCHEMA)
            .field("type", Schema.STRING_SCHEMA)
            .field("payload", Schema.STRING_SCHEMA)
            .field("deliver_at", Schema.OPTIONAL_INT64_SCHEMA)
            .build();
        var schema = SchemaBuilder.struct().name("db.outbox.Envelope")
            .field("before", row).field("after", row)
            .field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA).build();
        var after = new Struct(row).put("id", "4d47e190").put("aggregatetype", "orders").put("aggregateid", "42")
            .put("type", "reminder").put("payload", "{\"order\": 42}").put("deliver_at", due);
        return new Struct(schema).put("after", after).put("op", "c").put("ts_ms", 1L);
    }

    @SuppressWarnings("unchecked")
    static void connect(Properties properties, Struct value) throws Exception {
        var record = new SourceRecord(Map.of(), Map.of(), "table", 0, null, null, value.schema(), value, 1L);
        for (String name : properties.getProperty("transforms").split(",")) {
            Map<String, String> settings = new HashMap<>();
            String prefix = "transforms." + name + ".";
            for (String key : properties.stringPropertyNames()) {
                if (key.startsWith(prefix)) {
                    settings.put(key.substring(prefix.length()), properties.getProperty(key));
                }
            }
            Class<?> type = Class.forName(settings.remove("type"));
            try (var transformation = (Transformation<SourceRecord>) type.getDeclaredConstructor().newInstance()) {
                transformation.configure(settings);
                record = transformation.apply(record);
            }
        }
        System.out.println(record.topic());
        // The default header.converter of a worker.
        try (var converter = new SimpleHeaderConverter()) {
            for (var header : record.headers()) {
                print(header.key(), converter.fromConnectHeader(record.topic(), header.key(), header.schema(), header.value()));
            }
        }
    }

    static void streams() {
        try (var driver = new TopologyTestDriver(Later.topology())) {
            var in = driver.createInputTopic("orders", new StringSerializer(), new StringSerializer());
            var out = driver.createOutputTopic("orders.delay", new StringDeserializer(), new StringDeserializer());
            in.pipeInput("41", "{\"paid\": true}");
            in.pipeInput("42", "{\"paid\": false}");
            var record = out.readRecord();
            if (!out.isEmpty()) {
                throw new IllegalStateException("what is paid for is not to come again");
            }
            System.out.println("orders.delay");
            for (Header header : record.headers()) {
                print(header.key(), header.value());
            }
        }
    }

    static void unless() {
        try (var driver = new TopologyTestDriver(Unless.topology())) {
            var in = driver.createInputTopic("orders.paid", new StringSerializer(), new StringSerializer());
            var out = driver.createOutputTopic("orders.delay", new StringDeserializer(), new StringDeserializer());
            in.pipeInput("42", "{\"amount\": 7}");
            var record = out.readRecord();
            if (!record.key().equals("42") || record.value() != null) {
                throw new IllegalStateException("a cancel has the key of its schedule, and no value: " + record);
            }
            System.out.println("orders.delay");
            for (Header header : record.headers()) {
                print(header.key(), header.value());
            }
        }
    }

    /** The record that a listener fails with, in this attempt; null: for the first time. */
    static void spring(
        Function<KafkaOperations<String, String>, DeadLetterPublishingRecoverer> later, String attempt
    ) {
        var producer = new MockProducer<>(true, null, new StringSerializer(), new StringSerializer());
        var template = new KafkaTemplate<>(new MockProducerFactory<String, String>(() -> producer));
        var failed = new ConsumerRecord<>("orders", 3, 1077L, "42", "{\"order\": 42}");
        if (attempt != null) {
            failed.headers().add("delay-attempt", attempt.getBytes(UTF_8));
        }
        later.apply(template).accept(failed, new IllegalStateException("the service is away"));
        var sent = producer.history().get(0);
        System.out.println(sent.topic());
        for (Header header : sent.headers()) {
            if (!header.key().startsWith("kafka_dlt-")) {
                print(header.key(), header.value());
            }
        }
        if (Retries.errorHandler(template) == null || sent.partition() != null || !sent.value().equals(failed.value())) {
            throw new IllegalStateException("not the record that failed: " + sent);
        }
    }

    static void print(String name, byte[] value) {
        System.out.println(name + "\t" + (value == null ? "null" : Base64.getEncoder().encodeToString(value)));
    }
}
