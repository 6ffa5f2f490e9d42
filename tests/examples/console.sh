# Schedule a record with Kafka's console producer: sh console.sh SERVERS DELAY_TOPIC
# A line is: headers, tab, key, tab, value.
printf 'deliver-after:PT2S,deliver-id:order-42\t42\t{"order": 42}\n' |
    kafka-console-producer.sh --bootstrap-server "$1" --topic "$2" \
        --reader-property parse.headers=true --reader-property parse.key=true
