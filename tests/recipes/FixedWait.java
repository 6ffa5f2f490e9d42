import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.springframework.kafka.core.KafkaOperations;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;

/** Spring: a record that fails comes again in a quarter of an hour, however often. */
public class FixedWait {
    static DeadLetterPublishingRecoverer later(KafkaOperations<String, String> template) {
        var later = new DeadLetterPublishingRecoverer(template, (record, error) -> new TopicPartition("orders.delay", -1));
        later.addHeadersFunction((record, error) -> new RecordHeaders()
            .add("deliver-after", "15m".getBytes(UTF_8))
            .add("deliver-to", record.topic().getBytes(UTF_8)));
        return later;
    }
}
