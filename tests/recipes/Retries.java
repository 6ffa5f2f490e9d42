import org.apache.kafka.common.TopicPartition;
import org.springframework.kafka.core.KafkaOperations;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.util.backoff.FixedBackOff;

/** Spring: a record that fails twice comes again from the retry topic, and holds up nothing behind it. */
public class Retries {
    static DeadLetterPublishingRecoverer later(KafkaOperations<String, String> template) {
        return new DeadLetterPublishingRecoverer(template, (record, error) -> new TopicPartition("orders.retry", -1));
    }

    static DefaultErrorHandler errorHandler(KafkaOperations<String, String> template) {
        return new DefaultErrorHandler(later(template), new FixedBackOff(0, 1));
    }
}
