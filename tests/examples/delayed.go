// Schedule a record with franz-go, another one, and cancel that: go run . SERVERS DELAY_TOPIC
package main

import (
	"context"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	due := time.Now().Add(2 * time.Second).UnixMilli()
	record := &kgo.Record{
		Topic: os.Args[2],
		Key:   []byte("42"),
		Value: []byte(`{"order": 42}`),
		Headers: []kgo.RecordHeader{
			{Key: "deliver-at", Value: []byte(strconv.FormatInt(due, 10))},
			{Key: "deliver-id", Value: []byte("order-42")},
		},
	}
	reminder := &kgo.Record{
		Topic: os.Args[2],
		Key:   []byte("42"),
		Value: []byte(`{"reminder": 42}`),
		Headers: []kgo.RecordHeader{
			{Key: "deliver-after", Value: []byte("PT1H")},
			{Key: "deliver-id", Value: []byte("reminder-42")},
		},
	}
	// The same key: a cancel holds in its own partition.
	cancel := &kgo.Record{
		Topic:   os.Args[2],
		Key:     []byte("42"),
		Headers: []kgo.RecordHeader{{Key: "deliver-cancel", Value: []byte("reminder-42")}},
	}
	if err := client.ProduceSync(context.Background(), record, reminder, cancel).FirstErr(); err != nil {
		log.Fatal(err)
	}
}
