import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Instant;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Schedule a record with kafka-clients: java -cp 'libs/*' Delayed.java SERVERS DELAY_TOPIC */
public class Delayed {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0]);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            var record = new ProducerRecord<>(args[1], "42", "{\"order\": 42}");
            long due = Instant.now().plusSeconds(2).toEpochMilli();
            record.headers().add("deliver-at", Long.toString(due).getBytes(UTF_8));
            record.headers().add("deliver-id", "order-42".getBytes(UTF_8));
            producer.send(record).get();
        }
    }
}
