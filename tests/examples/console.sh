# Schedule a record with Kafka's console producer, another one, and cancel that: sh console.sh SERVERS DELAY_TOPIC
# A line is: headers, tab, key, tab, value. The same key, because a cancel holds in its own partition.
printf '%s\t42\t%s\n' \
    'deliver-after:PT2S,deliver-id:order-42' '{"order": 42}' \
    'deliver-after:PT1H,deliver-id:reminder-42' '{"reminder": 42}' \
    'deliver-cancel:reminder-42' '' |
    kafka-console-producer.sh --bootstrap-server "$1" --topic "$2" \
        --reader-property parse.headers=true --reader-property parse.key=true
