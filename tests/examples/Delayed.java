import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Instant;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Schedule a record with kafka-clients, another one, and cancel that: java -cp 'libs/*' Delayed.java SERVERS DELAY_TOPIC */
public class Delayed {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0]);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            var record = new ProducerRecord<>(args[1], "42", "{\"order\": 42}");
            long due = Instant.now().plusSeconds(2).toEpochMilli();
            record.headers().add("deliver-at", Long.toString(due).getBytes(UTF_8));
            record.headers().add("deliver-id", "order-42".getBytes(UTF_8));
            producer.send(record).get();

            var reminder = new ProducerRecord<>(args[1], "42", "{\"reminder\": 42}");
            reminder.headers().add("deliver-after", "PT1H".getBytes(UTF_8));
            reminder.headers().add("deliver-id", "reminder-42".getBytes(UTF_8));
            producer.send(reminder).get();
            // The same key: a cancel holds in its own partition.
            var cancel = new ProducerRecord<String, String>(args[1], "42", null);
            cancel.headers().add("deliver-cancel", "reminder-42".getBytes(UTF_8));
            producer.send(cancel).get();
        }
    }
}
