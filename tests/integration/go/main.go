// franz-go against one broker: produce with every codec, consume, join a group, commit, admin calls.
// Prints "ok" and exits 0, or prints the error.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const records = 200

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func run(bootstrap, topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	plain, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer plain.Close()
	admin := kadm.NewClient(plain)
	if _, err := admin.CreateTopic(ctx, 2, 1, nil, topic); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := admin.CreateTopic(ctx, 2, 1, nil, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create twice: %v", err)
	}
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	for _, codec := range codecs {
		if err := produce(ctx, bootstrap, topic, codec); err != nil {
			return err
		}
	}
	if err := tombstone(ctx, bootstrap, topic+"-tombstone"); err != nil {
		return err
	}
	if err := consume(ctx, bootstrap, topic, records*len(codecs)); err != nil {
		return err
	}
	offsets, err := admin.FetchOffsets(ctx, topic+"-group")
	if err != nil {
		return fmt.Errorf("fetch offsets: %w", err)
	}
	var committed int64
	offsets.Each(func(o kadm.OffsetResponse) { committed += o.At })
	if committed != int64(records*len(codecs)) {
		return fmt.Errorf("committed %d", committed)
	}
	_, err = admin.DeleteTopics(ctx, topic)
	return err
}

func produce(ctx context.Context, bootstrap, topic string, codec kgo.CompressionCodec) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	batch := make([]*kgo.Record, records)
	for i := range batch {
		batch[i] = &kgo.Record{Key: []byte(fmt.Sprint(i)), Value: []byte(fmt.Sprintf("value %d of franz-go", i))}
	}
	return client.ProduceSync(ctx, batch...).FirstErr()
}

// tombstone creates a topic by producing to it, and reads its record from an offset that it finds by time.
func tombstone(ctx context.Context, bootstrap, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.AllowAutoTopicCreation())
	if err != nil {
		return err
	}
	defer client.Close()
	at := time.UnixMilli(1_700_000_000_000)
	headers := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "none"}}
	before := &kgo.Record{Topic: topic, Value: []byte{}, Timestamp: at.Add(-time.Second)}
	wanted := &kgo.Record{Topic: topic, Key: []byte("k"), Headers: headers, Timestamp: at}
	if err := client.ProduceSync(ctx, before, wanted).FirstErr(); err != nil {
		return fmt.Errorf("produce a tombstone: %w", err)
	}
	from := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AfterMilli(at.UnixMilli())}}
	reader, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(from))
	if err != nil {
		return err
	}
	defer reader.Close()
	fetches := reader.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		return fmt.Errorf("read a tombstone: %w", err)
	}
	got := fetches.Records()[0]
	same := got.Offset == 1 && string(got.Key) == "k" && got.Value == nil && got.Timestamp.Equal(at)
	if !same || len(got.Headers) != 2 || string(got.Headers[0].Value) != "1" || got.Headers[1].Value != nil {
		return fmt.Errorf("the tombstone came back as %+v", got)
	}
	return nil
}

func consume(ctx context.Context, bootstrap, topic string, want int) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic+"-group"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for got := 0; got < want; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("after %d records: %w", got, err)
		}
		got += fetches.NumRecords()
	}
	return client.CommitUncommittedOffsets(ctx)
}
