import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;

/** Kafka Streams: what is not paid for is looked at again after a day. */
public class Later {
    static class Reminder extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            record.headers().add("deliver-after", "1d".getBytes(UTF_8));
            record.headers().add("deliver-to", "orders.unpaid".getBytes(UTF_8));
            context().forward(record);
        }
    }

    static Topology topology() {
        var builder = new StreamsBuilder();
        builder.stream("orders", Consumed.with(Serdes.String(), Serdes.String()))
            .filter((id, order) -> !order.contains("\"paid\": true"))
            .process(Reminder::new)
            .to("orders.delay", Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }
}
