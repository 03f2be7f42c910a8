package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/stream-arrow/twgd/record"
)

// Options say which logs of which cluster are read, and from where.
type Options struct {
	Client string       // the client id brokers see: node id~instance
	Logger *slog.Logger // the stream's; what Next tells is not logged here. nil discards

	Brokers   []string // host:port
	ClusterID string   // replaces what the brokers report; empty: what they report

	// Either Topics or TopicsRegex, with Group; or Partitions alone, which pins partitions and keeps no position in Kafka.
	Topics      []string
	TopicsRegex string // matches anywhere in the name, as Go's regexp does; internal topics never match
	Group       string
	Partitions  map[string][]int32

	// Start is earliest, latest, committed (earliest where the group has committed nothing) or a time of RFC 3339. It holds for
	// the partitions that exist at the stream's first start.
	Start     string
	Isolation string // read_committed | read_uncommitted
	OnGap     string // continue | stop

	// Alone says that raw belongs to this process, so that another member of the group would take partitions elsewhere: it is
	// reported as a Held of the whole stream, while both go on.
	Alone bool

	SessionTimeout time.Duration // how long a killed member keeps its partitions
	Fetch          FetchOptions
	TLS            TLSOptions
	SASL           SASLOptions

	// FirstStart makes the stream's beginning durable: it is handed what Start means for every partition that exists now and
	// returns what the stream's first start found, which wins. A partition that is absent from that begins at its log's start.
	// It is called once a connection stands and before anything is read, and again, slowly, while it returns an error: that
	// holds the whole stream. nil keeps the beginning for the life of the process only.
	FirstStart func(ctx context.Context, cluster string, fixed map[record.Partition]int64) (stored map[record.Partition]int64, first bool, err error)

	// Dial replaces the network, for a broker inside the process. nil is the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// FetchOptions bound what is read ahead.
type FetchOptions struct {
	MaxBytes int64         // compressed bytes a broker and fetch
	MaxWait  time.Duration // how long a broker may wait for data
}

// TLSOptions are about the connections to brokers. An empty CAFile trusts the system's authorities.
type TLSOptions struct {
	Enabled                   bool
	CAFile, CertFile, KeyFile string
	ServerName                string
}

// SASLOptions are how the client proves who it is; an empty Mechanism is not at all.
type SASLOptions struct {
	Mechanism          string // PLAIN | SCRAM-SHA-256 | SCRAM-SHA-512
	Username, Password string
}

// Values of Start, Isolation and OnGap.
const (
	StartEarliest   = "earliest"
	StartLatest     = "latest"
	StartCommitted  = "committed"
	ReadCommitted   = "read_committed"
	ReadUncommitted = "read_uncommitted"
	GapContinue     = "continue"
	GapStop         = "stop"
)

// complete fills in the defaults and refuses what cannot be meant.
func (o *Options) complete() error {
	setDefault(&o.Start, StartEarliest)
	setDefault(&o.Isolation, ReadCommitted)
	setDefault(&o.OnGap, GapContinue)
	setDefault(&o.Client, "twgd")
	setDefault(&o.SessionTimeout, 45*time.Second)
	setDefault(&o.Fetch.MaxBytes, 1<<20)
	setDefault(&o.Fetch.MaxWait, 500*time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(o.checkWhat(), o.checkHow())
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (o *Options) checkWhat() error {
	switch {
	case len(o.Brokers) == 0:
		return errors.New("no brokers are named")
	case len(o.Partitions) > 0 && (o.Group != "" || len(o.Topics) > 0 || o.TopicsRegex != ""):
		return errors.New("partitions stand alone: no group, topics or topics_regex beside them")
	case len(o.Partitions) > 0:
		return nil
	case o.Group == "":
		return errors.New("neither a group nor partitions are named")
	case (len(o.Topics) > 0) == (o.TopicsRegex != ""):
		return errors.New("either topics or topics_regex must be given")
	}
	if _, err := regexp.Compile(o.TopicsRegex); err != nil {
		return fmt.Errorf("topics_regex: %w", err)
	}
	return nil
}

func (o *Options) checkHow() error {
	if _, err := parseStart(o.Start); err != nil {
		return err
	}
	for _, c := range []struct{ key, value, a, b string }{
		{"isolation", o.Isolation, ReadCommitted, ReadUncommitted},
		{"on_gap", o.OnGap, GapContinue, GapStop},
	} {
		if c.value != c.a && c.value != c.b {
			return fmt.Errorf("%s: %q is neither %s nor %s", c.key, c.value, c.a, c.b)
		}
	}
	if o.Fetch.MaxBytes < 1<<10 || o.Fetch.MaxBytes > 1<<30 {
		return fmt.Errorf("fetch.max_bytes: %d is not between 1KiB and 1GiB", o.Fetch.MaxBytes)
	}
	return nil
}

// committed reports whether aborted and undecided records are hidden.
func (o *Options) committed() bool { return o.Isolation == ReadCommitted }

// wanted is the test for topics that the stream reads.
func (o *Options) wanted() func(topic string) bool {
	if o.TopicsRegex != "" {
		return regexp.MustCompile(o.TopicsRegex).MatchString
	}
	set := map[string]bool{}
	for _, t := range o.names() {
		set[t] = true
	}
	return func(topic string) bool { return set[topic] }
}

// names lists the topics that are named one by one; none where a pattern chooses.
func (o *Options) names() []string {
	names := append([]string(nil), o.Topics...)
	for t := range o.Partitions {
		names = append(names, t)
	}
	return names
}

// pinned reports whether the partition is one that the configuration asks for; with a group every partition is.
func (o *Options) pinned(topic string, number int32) bool {
	if len(o.Partitions) == 0 {
		return true
	}
	for _, n := range o.Partitions[topic] {
		if n == number {
			return true
		}
	}
	return false
}

// dialOptions are what every client of the source shares: who we are and how brokers are reached. A request that fails is
// tried a few times only: whoever sent it knows better how long to go on, and wants to see the error.
func (o *Options) dialOptions(l *slog.Logger, hooks ...kgo.Hook) ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...), kgo.ClientID(o.Client), kgo.WithLogger(clientLog{l}), kgo.WithHooks(hooks...),
		kgo.DisableClientMetrics(), kgo.RequestRetries(2), kgo.RetryTimeout(10 * time.Second), kgo.DialTimeout(5 * time.Second),
	}
	secure, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	mechanism, err := o.mechanism()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	switch {
	case o.Dial != nil && secure != nil:
		opts = append(opts, kgo.Dialer(tlsOver(o.Dial, secure)))
	case o.Dial != nil:
		opts = append(opts, kgo.Dialer(o.Dial))
	case secure != nil:
		opts = append(opts, kgo.DialTLSConfig(secure))
	}
	return opts, nil
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func tlsOver(dial dialFunc, c *tls.Config) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		named := c.Clone()
		if host, _, err := net.SplitHostPort(address); err == nil && named.ServerName == "" {
			named.ServerName = host
		}
		secured := tls.Client(conn, named)
		if err := secured.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return secured, nil
	}
}

func (o *Options) tlsConfig() (*tls.Config, error) {
	if !o.TLS.Enabled {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.TLS.ServerName}
	if o.TLS.CAFile != "" {
		pem, err := os.ReadFile(o.TLS.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls.ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca_file: %s holds no certificate", o.TLS.CAFile)
		}
	}
	if o.TLS.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.TLS.CertFile, o.TLS.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("tls.cert_file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (o *Options) mechanism() (sasl.Mechanism, error) {
	switch s := o.SASL; s.Mechanism {
	case "":
		return nil, nil
	case "PLAIN":
		return plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("sasl.mechanism: %q is not PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", o.SASL.Mechanism)
}

// start is Start parsed: a special timestamp of ListOffsets, or milliseconds.
type start struct {
	millis    int64
	committed bool
}

// Special timestamps of ListOffsets.
const (
	askLatest   = -1
	askEarliest = -2
)

func parseStart(s string) (start, error) {
	switch s {
	case StartEarliest:
		return start{millis: askEarliest}, nil
	case StartLatest:
		return start{millis: askLatest}, nil
	case StartCommitted:
		return start{millis: askEarliest, committed: true}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.UnixMilli() < 0 {
		return start{}, fmt.Errorf("start: %s is not earliest, latest, committed or a time such as 2026-01-31T00:00:00Z", strconv.Quote(s))
	}
	return start{millis: t.UnixMilli()}, nil
}
