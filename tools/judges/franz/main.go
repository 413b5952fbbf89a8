// franz-go as a judge: a request a line on stdin, an answer a line on stdout, both JSON, as the programs of the other clients.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type request struct {
	Do         string
	Topic      string
	Topics     []string
	Codec      string
	Prefix     string
	Count      int
	Partitions int
	Committed  bool
	Name       string
	ID         string
	TimeoutMs  int `json:"timeout_ms"`
	Value      string
	Key        string
	Offset     int64
	Group      string
	Source     string
	Target     string
}

type client struct {
	servers   []string
	producers map[string]*kgo.Client
	admin     *kadm.Client
	member    *member
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	c := &client{servers: strings.Split(os.Args[1], ","), producers: map[string]*kgo.Client{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		ok, err := c.do(ctx, r)
		cancel()
		if err != nil {
			_ = out.Encode(map[string]any{"error": err.Error()})
		} else {
			_ = out.Encode(map[string]any{"ok": ok})
		}
	}
}

func (c *client) do(ctx context.Context, r request) (any, error) {
	switch r.Do {
	case "write":
		return nil, c.write(ctx, r)
	case "read":
		return c.read(ctx, r)
	case "init":
		return nil, c.init(ctx, r)
	case "begin":
		return nil, c.producers[r.Name].BeginTransaction()
	case "send":
		return nil, c.producers[r.Name].ProduceSync(ctx, &kgo.Record{Topic: r.Topic, Value: []byte(r.Value)}).FirstErr()
	case "commit":
		return nil, c.producers[r.Name].EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return nil, c.producers[r.Name].EndTransaction(ctx, kgo.TryAbort)
	case "chain":
		return nil, c.chain(ctx, r)
	case "join":
		return nil, c.join(r)
	case "seen":
		return c.member.seen(), nil
	case "leave":
		c.member.leave()
		return nil, nil
	}
	return c.administer(ctx, r)
}

func (c *client) open(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(c.servers...))...)
}

func (c *client) write(ctx context.Context, r request) error {
	// Keys are placed as Java's client places them.
	producer, err := c.open(kgo.ProducerBatchCompression(codecs[r.Codec]), kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		return err
	}
	defer producer.Close()
	var records []*kgo.Record
	for number := 0; number < r.Count; number++ {
		value := fmt.Sprintf("%s-%d-%s", r.Prefix, number, strings.Repeat("x", 50))
		key := fmt.Sprintf("key-%d", number)
		records = append(records, &kgo.Record{Topic: r.Topic, Key: []byte(key), Value: []byte(value)})
	}
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func (c *client) read(ctx context.Context, r request) (any, error) {
	places := map[string]map[int32]kgo.Offset{}
	for _, topic := range r.Topics {
		places[topic] = map[int32]kgo.Offset{}
		for number := 0; number < r.Partitions; number++ {
			places[topic][int32(number)] = kgo.NewOffset().AtStart()
		}
	}
	level := kgo.ReadUncommitted()
	if r.Committed {
		level = kgo.ReadCommitted()
	}
	consumer, err := c.open(kgo.ConsumePartitions(places), kgo.FetchIsolationLevel(level))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found := [][]any{}
	for len(found) < r.Count {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records came: %w", len(found), r.Count, err)
		}
		fetches.EachRecord(func(one *kgo.Record) {
			var key any
			if one.Key != nil {
				key = string(one.Key)
			}
			found = append(found, []any{one.Topic, one.Partition, one.Offset, key, string(one.Value)})
		})
	}
	return found, nil
}

func (c *client) init(ctx context.Context, r request) error {
	timeout := time.Duration(r.TimeoutMs) * time.Millisecond
	producer, err := c.open(kgo.TransactionalID(r.ID), kgo.TransactionTimeout(timeout))
	if err != nil {
		return err
	}
	c.producers[r.Name] = producer
	_, _, err = producer.ProducerID(ctx)
	return err
}

// chain copies `count` records from one topic to another, each poll in a transaction that holds the offsets too.
func (c *client) chain(ctx context.Context, r request) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(c.servers...), kgo.TransactionalID(r.ID), kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Source),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for copied := 0; copied < r.Count; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(one *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: r.Target, Value: one.Value}, nil)
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return err
		}
		if committed {
			copied += fetches.NumRecords()
		}
	}
	return nil
}

func (c *client) administer(ctx context.Context, r request) (any, error) {
	if c.admin == nil {
		opened, err := c.open()
		if err != nil {
			return nil, err
		}
		c.admin = kadm.NewClient(opened)
	}
	switch r.Do {
	case "create":
		answer, err := c.admin.CreateTopic(ctx, int32(r.Partitions), 1, nil, r.Topic)
		return nil, errors.Join(err, answer.Err)
	case "describe":
		topics, err := c.admin.ListTopics(ctx, r.Topic)
		return len(topics[r.Topic].Partitions), err
	case "topics":
		topics, err := c.admin.ListTopicsWithInternal(ctx)
		return topics.Names(), err
	case "alter":
		answer, err := c.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: r.Key, Value: &r.Value}}, r.Topic)
		if err == nil {
			err = answer[0].Err
		}
		return nil, err
	case "config":
		configs, err := c.admin.DescribeTopicConfigs(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		for _, one := range configs[0].Configs {
			if one.Key == r.Key {
				return one.MaybeValue(), nil
			}
		}
		return nil, fmt.Errorf("no config %s", r.Key)
	case "delete_records":
		offsets := kadm.Offsets{}
		offsets.AddOffset(r.Topic, 0, r.Offset, -1)
		answer, err := c.admin.DeleteRecords(ctx, offsets)
		return nil, errors.Join(err, answer.Error())
	case "groups":
		groups, err := c.admin.ListGroups(ctx)
		return groups.Groups(), err
	case "group":
		groups, err := c.admin.DescribeGroups(ctx, r.Group)
		return groups[r.Group].State, errors.Join(err, groups[r.Group].Err)
	case "delete":
		answer, err := c.admin.DeleteTopic(ctx, r.Topic)
		return nil, errors.Join(err, answer.Err)
	}
	return nil, fmt.Errorf("unknown request %q", r.Do)
}

// member is a member of a group; it commits as it goes.
type member struct {
	consumer *kgo.Client
	done     sync.WaitGroup
	lock     sync.Mutex
	values   []string
	assigned map[int32]bool
}

func (c *client) join(r request) error {
	m := &member{assigned: map[int32]bool{}}
	note := func(is bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.lock.Lock()
			defer m.lock.Unlock()
			for _, number := range changed[r.Topic] {
				if is {
					m.assigned[number] = true
				} else {
					delete(m.assigned, number)
				}
			}
		}
	}
	consumer, err := c.open(
		kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic), kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(100*time.Millisecond),
		kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)),
	)
	if err != nil {
		return err
	}
	m.consumer = consumer
	c.member = m
	m.done.Add(1)
	go func() {
		defer m.done.Done()
		for {
			fetches := consumer.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			m.lock.Lock()
			fetches.EachRecord(func(one *kgo.Record) { m.values = append(m.values, string(one.Value)) })
			m.lock.Unlock()
		}
	}()
	return nil
}

func (m *member) seen() any {
	m.lock.Lock()
	defer m.lock.Unlock()
	assigned := []int{}
	for number := range m.assigned {
		assigned = append(assigned, int(number))
	}
	sort.Ints(assigned)
	return map[string]any{"values": append([]string{}, m.values...), "assigned": assigned}
}

func (m *member) leave() {
	_ = m.consumer.CommitUncommittedOffsets(context.Background())
	m.consumer.Close()
	m.done.Wait()
}
