import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A consumer that fails with the record at an offset, and sends it to the retry topic. */
public class Failing {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> servers = Map.of("bootstrap.servers", arguments[0]);
        var place = new TopicPartition(arguments[1], 0);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(servers, bytes, bytes);
            var producer = new KafkaProducer<>(servers, new ByteArraySerializer(), new ByteArraySerializer())) {
            consumer.assign(List.of(place));
            consumer.seek(place, Long.parseLong(arguments[2]));
            var record = consumer.poll(Duration.ofMinutes(1)).iterator().next();
            try {
                handle(record);
            } catch (RuntimeException failed) {
                producer.send(new ProducerRecord<>("orders.retry", null, record.key(), record.value(), record.headers())).get();
            }
        }
    }

    static void handle(ConsumerRecord<byte[], byte[]> record) {
        throw new IllegalStateException("the database is away");
    }
}
