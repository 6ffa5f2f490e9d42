# Schedule a record with kcat, another one, and cancel that: sh kcat.sh SERVERS DELAY_TOPIC
printf '42\t{"order": 42}\n' |
    kcat -P -b "$1" -t "$2" -X enable.idempotence=true -K '\t' -H deliver-after=PT2S -H deliver-id=order-42
printf '42\t{"reminder": 42}\n' |
    kcat -P -b "$1" -t "$2" -X enable.idempotence=true -K '\t' -H deliver-after=PT1H -H deliver-id=reminder-42
# The same key: a cancel holds in its own partition.
printf '42\t\n' |
    kcat -P -b "$1" -t "$2" -X enable.idempotence=true -K '\t' -H deliver-cancel=reminder-42
