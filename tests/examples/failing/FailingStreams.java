import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/** A Kafka Streams application that fails with the first attempt of each record, and runs until its input ends. */
public class FailingStreams {
    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        settings.putAll(Map.of(
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
            StreamsConfig.APPLICATION_ID_CONFIG, arguments[1],
            StreamsConfig.STATE_DIR_CONFIG, arguments[3],
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class.getName(),
            StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class.getName(),
            StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest"));
        var orders = arguments[2];
        var builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream(orders).processValues(() -> new ContextualFixedKeyProcessor<byte[], byte[], byte[]>() {
            public void process(FixedKeyRecord<byte[], byte[]> record) {
                if (fails(record)) context().forward(record.withTimestamp(context().currentSystemTimeMs()));
            }
        }).to("orders.retry");
        try (var streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            while (System.in.read() >= 0) {
            }
        }
    }

    static boolean fails(FixedKeyRecord<byte[], byte[]> record) {
        try {
            handle(record);
            return false;
        } catch (RuntimeException failed) {
            return true;
        }
    }

    static void handle(FixedKeyRecord<byte[], byte[]> record) {
        var attempt = record.headers().lastHeader("delay-attempt");
        if (new String(attempt.value(), StandardCharsets.US_ASCII).equals("1")) {
            throw new IllegalStateException("the database is away");
        }
    }
}
