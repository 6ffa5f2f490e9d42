import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/**
 * Forward records with their headers, exactly once, until standard input ends:
 * java Forwarding SERVERS APPLICATION_ID FROM TO COMMIT_INTERVAL_MS DIRECTORY
 *
 * A copy has one header more, "forwarded". A record that has this header is not forwarded again.
 */
public class Forwarding {
    static final String FORWARDED = "forwarded";
    static final int TRANSACTION_TIMEOUT_MS = 120_000;

    static class Mark extends ContextualFixedKeyProcessor<byte[], byte[], byte[]> {
        @Override
        public void process(FixedKeyRecord<byte[], byte[]> record) {
            if (record.headers().lastHeader(FORWARDED) == null) {
                context().forward(record.withHeaders(new RecordHeaders(record.headers()).add(FORWARDED, null)));
            }
        }
    }

    public static void main(String[] args) throws Exception {
        var settings = new Properties();
        settings.putAll(Map.of(
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0],
            StreamsConfig.APPLICATION_ID_CONFIG, args[1],
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, args[4],
            StreamsConfig.STATE_DIR_CONFIG, args[5],
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class.getName(),
            StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class.getName(),
            StreamsConfig.producerPrefix("transaction.timeout.ms"), TRANSACTION_TIMEOUT_MS,
            StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest"));
        var builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream(args[2]).processValues(Mark::new).to(args[3]);
        try (var streams = new KafkaStreams(builder.build(), settings)) {
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            while (System.in.read() >= 0) {
            }
        }
    }
}
