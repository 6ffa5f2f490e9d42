// A consumer that fails with the record at an offset, and sends it to the retry topic.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

func handle(record *kgo.Record) error {
	return errors.New("the database is away")
}

func main() {
	ctx := context.Background()
	at, err := strconv.ParseInt(os.Args[3], 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	place := map[string]map[int32]kgo.Offset{os.Args[2]: {0: kgo.NewOffset().At(at)}}
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.ConsumePartitions(place))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	record := client.PollFetches(ctx).Records()[0]
	if handle(record) != nil {
		retry := kgo.Record{Topic: "orders.retry", Key: record.Key, Value: record.Value, Headers: record.Headers}
		err = client.ProduceSync(ctx, &retry).FirstErr()
	}
	if err != nil {
		log.Fatal(err)
	}
}
