# Schedule a record with kcat: sh kcat.sh SERVERS DELAY_TOPIC
printf '42\t{"order": 42}\n' |
    kcat -P -b "$1" -t "$2" -K '\t' -H deliver-after=PT2S -H deliver-id=order-42
