import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/** Kafka Streams: an order that is paid for needs no reminder. */
public class Unless {
    static class Cancel extends ContextualFixedKeyProcessor<String, String, String> {
        @Override
        public void process(FixedKeyRecord<String, String> paid) {
            byte[] id = ("reminder-" + paid.key()).getBytes(UTF_8);
            var cancel = new RecordHeaders().add("deliver-cancel", id);
            context().forward(paid.withHeaders(cancel).<String>withValue(null));
        }
    }

    static Topology topology() {
        var builder = new StreamsBuilder();
        builder.stream("orders.paid", Consumed.with(Serdes.String(), Serdes.String()))
            .processValues(Cancel::new)
            .to("orders.delay", Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }
}
