//go:build e2e

package servers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func TestKafka(t *testing.T) {
	if os.Getenv(EnvBrokers) != "" {
		t.Log(EnvBrokers + " names a broker that is not ours: only what its clients can do is tested")
	}
	ctx := t.Context()
	k, err := Kafka(ctx, KafkaOptions{Faults: true, Heap: "384m"})
	must(t, err)
	if k.external == nil {
		leavesNothing(t, k.dir)
	}
	closes(t, k)
	id, err := k.CreateTopic(ctx, "servers-test", 2, map[string]string{"retention.ms": "-1"})
	must(t, err)
	t.Cleanup(func() {
		if k.external != nil {
			must(t, k.DeleteTopic(context.Background(), "servers-test"))
		}
	})
	roundTrip(t, k.Brokers())
	t.Run("DeleteRecords", func(t *testing.T) {
		start, err := k.DeleteRecords(ctx, "servers-test", 0, 1)
		must(t, err)
		if start != 1 {
			t.Errorf("log start %d, want 1", start)
		}
	})
	t.Run("AddPartitions", func(t *testing.T) { must(t, k.AddPartitions(ctx, "servers-test", 3)) })
	if k.external != nil {
		if err := k.Stop(); !errors.Is(err, ErrExternal) {
			t.Errorf("Stop of an external broker: %v, want ErrExternal", err)
		}
		return
	}
	t.Run("PLAIN", func(t *testing.T) {
		roundTrip(t, k.SASLBrokers(), kgo.SASL(plain.Auth{User: KafkaUser, Pass: KafkaPassword}.AsMechanism()))
	})
	t.Run("SCRAM-SHA-256", func(t *testing.T) { roundTrip(t, k.SASLBrokers(), kgo.SASL(scramAs(scram.Auth.AsSha256Mechanism))) })
	t.Run("SCRAM-SHA-512", func(t *testing.T) { roundTrip(t, k.SASLBrokers(), kgo.SASL(scramAs(scram.Auth.AsSha512Mechanism))) })
	t.Run("wrong password", func(t *testing.T) { refused(t, k) })
	t.Run("TLS", func(t *testing.T) { roundTrip(t, k.TLSBrokers(), kgo.DialTLSConfig(clientTLS(t, k))) })
	t.Run("Faults", func(t *testing.T) { kafkaAway(t, k) })
	t.Run("Kill and Start", func(t *testing.T) {
		must(t, k.Kill())
		if k.PID() != 0 {
			t.Error("killed, but has a process")
		}
		must(t, k.Start(ctx))
		roundTrip(t, k.Brokers())
		same, err := k.CreateTopic(ctx, "servers-test-2", 1, nil)
		must(t, err)
		if same == id {
			t.Error("two topics have one id")
		}
	})
	t.Run("Pause and Continue", func(t *testing.T) { kafkaPaused(t, k) })
	t.Run("delete and create again", func(t *testing.T) {
		must(t, k.DeleteTopic(ctx, "servers-test"))
		again, err := k.CreateTopic(ctx, "servers-test", 1, nil)
		must(t, err)
		if again == id {
			t.Error("the topic that was created again has its old id")
		}
	})
	t.Run("Stop and Start", func(t *testing.T) {
		must(t, k.Stop())
		must(t, k.Start(ctx))
		roundTrip(t, k.Brokers())
	})
}

func scramAs(mechanism func(scram.Auth) sasl.Mechanism) sasl.Mechanism {
	return mechanism(scram.Auth{User: KafkaUser, Pass: KafkaPassword})
}

// roundTrip produces one record to partition 0 and consumes it from its offset.
func roundTrip(t *testing.T, brokers []string, opts ...kgo.Opt) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	producer, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	must(t, err)
	defer producer.Close()
	sent, err := producer.ProduceSync(ctx, &kgo.Record{Topic: "servers-test", Value: []byte(t.Name())}).First()
	must(t, err)
	consumer, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		"servers-test": {0: kgo.NewOffset().At(sent.Offset)}}))...)
	must(t, err)
	defer consumer.Close()
	fetches := consumer.PollFetches(ctx)
	must(t, fetches.Err())
	if got := string(fetches.Records()[0].Value); got != t.Name() {
		t.Errorf("consumed %q, want %q", got, t.Name())
	}
}

func refused(t *testing.T, k *KafkaServer) {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.SASLBrokers()...), kgo.SASL(plain.Auth{User: KafkaUser, Pass: "wrong"}.AsMechanism()))
	must(t, err)
	defer client.Close()
	if err := client.Ping(t.Context()); err == nil {
		t.Error("a wrong password is let in")
	}
}

// clientTLS trusts the test authority and has a certificate to show.
func clientTLS(t *testing.T, k *KafkaServer) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(k.CAFile())
	must(t, err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate in", k.CAFile())
	}
	pair, err := tls.LoadX509KeyPair(k.ClientCertFile(), k.ClientKeyFile())
	must(t, err)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
}

// kafkaAway makes the broker refuse, and come back, for clients that entered through FaultyBrokers.
func kafkaAway(t *testing.T, k *KafkaServer) {
	roundTrip(t, k.FaultyBrokers())
	client, err := kgo.NewClient(kgo.SeedBrokers(k.FaultyBrokers()...))
	must(t, err)
	defer client.Close()
	must(t, client.Ping(t.Context()))
	must(t, k.Faults().Set(TCPRefuse))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := client.Ping(ctx); err == nil {
		t.Error("the broker answers though its proxy refuses")
	}
	must(t, k.Faults().Set(TCPPass))
	roundTrip(t, k.FaultyBrokers())
}

func kafkaPaused(t *testing.T, k *KafkaServer) {
	must(t, k.Pause())
	eventually(t, func() bool { return stateOf(k.PID()) == "T" })
	must(t, k.Continue())
	roundTrip(t, k.Brokers())
}
