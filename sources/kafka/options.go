package kafka

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stream-arrow/twgd/unit"
)

// Config is what a stream's configuration says under source.kafka. The tags are explained in package config.
type Config struct {
	Brokers        []unit.Address     `yaml:"brokers" required:"the connection begins at one of them" example:"[localhost:9092]" doc:"Brokers to begin with; the others are learned from them."`
	ClusterID      string             `yaml:"cluster_id" default:"" doc:"The cluster's id in record ids and in raw, instead of what the brokers report."`
	Topics         []string           `yaml:"topics" example:"[orders]" doc:"The topics."`
	TopicsRegex    string             `yaml:"topics_regex" default:"" example:"#'^orders\\.'" doc:"Or, instead of topics, a regular expression (RE2) that is searched for in the names; new topics that match are taken as they appear."`
	Group          string             `yaml:"group" default:"" example:"twgd-orders" doc:"The consumer group; its members share the partitions."`
	Partitions     map[string][]int32 `yaml:"partitions" example:"#{orders: [0, 1]}" doc:"Or, instead of a group, the partitions of each topic; the position is then kept in raw alone, and topics may be left out."`
	Start          string             `yaml:"start" default:"earliest" form:"earliest, latest, committed or a time such as 2026-01-31T00:00:00Z" doc:"Where partitions begin that exist at the stream's first start: earliest, latest, committed, or a time (RFC 3339). Later ones begin at their earliest offset."`
	Isolation      string             `yaml:"isolation" default:"read_committed" enum:"read_committed|read_uncommitted" doc:"Whether records of aborted transactions are left out."`
	OnGap          string             `yaml:"on_gap" default:"continue" enum:"continue|stop" doc:"When retention has taken records before they were read: record the gap and go on, or hold the partition until an operator decides."`
	SessionTimeout unit.Duration      `yaml:"session_timeout" default:"45s" min:"1s" max:"30m" doc:"How long a member that was killed keeps its partitions."`
	Fetch          FetchConfig        `yaml:"fetch" doc:"What is read ahead."`
	TLS            TLSConfig          `yaml:"tls" doc:"Encryption."`
	SASL           SASLConfig         `yaml:"sasl" doc:"Authentication."`
}

// FetchConfig bounds what is read ahead.
type FetchConfig struct {
	MaxBytes unit.Size     `yaml:"max_bytes" default:"1MiB" min:"1KiB" max:"1GiB" doc:"Compressed bytes that one broker returns to one fetch. Memory is this times brokers times the compression ratio, twice."`
	MaxWait  unit.Duration `yaml:"max_wait" default:"500ms" min:"1ms" max:"1m" doc:"How long a broker waits for data before it answers."`
}

// TLSConfig says how the connection is encrypted.
type TLSConfig struct {
	Enabled    bool   `yaml:"enabled" default:"false" doc:"Whether connections are encrypted."`
	CAFile     string `yaml:"ca_file" default:"" doc:"PEM file of the authorities to trust; empty: the system's."`
	CertFile   string `yaml:"cert_file" default:"" doc:"PEM file of the client's certificate."`
	KeyFile    string `yaml:"key_file" default:"" doc:"PEM file of its key."`
	ServerName string `yaml:"server_name" default:"" doc:"The name that the brokers' certificates must carry; empty: the host that is dialled."`
}

// SASLConfig says who we are.
type SASLConfig struct {
	Mechanism string `yaml:"mechanism" default:"" enum:"|PLAIN|SCRAM-SHA-256|SCRAM-SHA-512" doc:"How; empty: not at all."`
	Username  string `yaml:"username" default:"" doc:"The user."`
	Password  string `yaml:"password" default:"" secret:"true" doc:"The password; better from a file: ${file:/run/secrets/kafka}."`
}

// Check reports what several keys together get wrong.
func (c *Config) Check(report func(key, found, problem string)) {
	c.checkBrokers(report)
	c.checkTopics(report)
	c.checkGroup(report)
	c.checkPartitions(report)
	c.checkStart(report)
	c.TLS.check(report)
	c.SASL.check(report)
}

func (c *Config) checkBrokers(report func(key, found, problem string)) {
	for i, b := range c.Brokers {
		if b != "" && (b.Host() == "" || strings.HasSuffix(string(b), ":0")) {
			report(keyAt("brokers", i), string(b), "a broker has a host and a port above 0")
		}
	}
}

func keyAt(key string, i int) string { return key + "[" + strconv.Itoa(i) + "]" }

func (c *Config) checkTopics(report func(key, found, problem string)) {
	switch {
	case len(c.Topics) > 0 && c.TopicsRegex != "":
		report("topics_regex", "", "topics are given already; a stream has topics or topics_regex")
	case len(c.Topics) == 0 && c.TopicsRegex == "" && len(c.Partitions) == 0:
		report("topics", "", "this key is missing: either topics or topics_regex says what is read")
	}
	for i, t := range c.Topics {
		switch {
		case !legalTopicName(t):
			report(keyAt("topics", i), t, "no topic has this name: up to 249 letters, digits, dots, hyphens and underscores")
		case slices.Contains(c.Topics[:i], t):
			report(keyAt("topics", i), t, "this topic is there already")
		}
	}
	if _, err := regexp.Compile(c.TopicsRegex); err != nil {
		report("topics_regex", c.TopicsRegex, "the regular expression does not compile"+regexReason(err))
	}
}

// legalTopicName reports whether a broker could have a topic of that name.
func legalTopicName(name string) bool {
	illegal := func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	return name != "" && len(name) <= 249 && name != "." && name != ".." && !strings.ContainsFunc(name, illegal)
}

// regexReason is what is wrong with an expression, without the expression.
func regexReason(err error) string {
	if e, ok := err.(*syntax.Error); ok {
		return ": " + string(e.Code)
	}
	return ""
}

func (c *Config) checkGroup(report func(key, found, problem string)) {
	switch {
	case c.Group != "" && len(c.Partitions) > 0:
		report("partitions", "", "a group is given already; a stream has group or partitions")
	case c.Group == "" && len(c.Partitions) == 0:
		report("group", "", "this key is missing: either a group shares the partitions out, or partitions names them")
	case len(c.Partitions) > 0 && c.TopicsRegex != "":
		report("topics_regex", "", "partitions name their topics; a pattern cannot stand beside them")
	}
}

func (c *Config) checkPartitions(report func(key, found, problem string)) {
	for topic, numbers := range c.Partitions {
		key := "partitions." + topic
		switch {
		case !legalTopicName(topic):
			report("partitions", topic, "no topic has this name: up to 249 letters, digits, dots, hyphens and underscores")
		case len(c.Topics) > 0 && !slices.Contains(c.Topics, topic):
			report(key, "", "this topic is not among topics")
		case len(numbers) == 0:
			report(key, "", "this list is empty: it names the partitions")
		}
		for i, n := range numbers {
			if n < 0 || slices.Contains(numbers[:i], n) {
				report(keyAt(key, i), strconv.Itoa(int(n)), "partitions are numbers from 0 on, each once")
			}
		}
	}
	c.checkUnnamed(report)
}

// checkUnnamed finds topics that are to be read, but no partition of them.
func (c *Config) checkUnnamed(report func(key, found, problem string)) {
	if len(c.Partitions) == 0 {
		return
	}
	for i, t := range c.Topics {
		if _, ok := c.Partitions[t]; !ok {
			report(keyAt("topics", i), t, "partitions names none of this topic")
		}
	}
}

func (c *Config) checkStart(report func(key, found, problem string)) {
	switch c.Start {
	case "earliest", "latest":
	case "committed":
		if len(c.Partitions) > 0 {
			report("start", c.Start, "only a group has committed offsets, and partitions are given instead of one")
		}
	default:
		if _, err := time.Parse(time.RFC3339, c.Start); err != nil {
			report("start", c.Start, "this is none of earliest, latest, committed, and no time such as 2026-01-31T00:00:00Z (RFC 3339)")
		}
	}
}

func (t TLSConfig) check(report func(key, found, problem string)) {
	if !t.Enabled && (t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.ServerName != "") {
		report("tls.enabled", "false", "TLS is off, and the other keys beside it would do nothing")
	}
	if t.CertFile != "" && t.KeyFile == "" {
		report("tls.key_file", "", "this key is missing: a certificate needs its key")
	}
	if t.CertFile == "" && t.KeyFile != "" {
		report("tls.cert_file", "", "this key is missing: a key needs its certificate")
	}
}

func (s SASLConfig) check(report func(key, found, problem string)) {
	switch {
	case s.Mechanism == "" && (s.Username != "" || s.Password != ""):
		report("sasl.mechanism", "", "this key is missing: a user is given, but not how to authenticate: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512")
	case s.Mechanism != "" && s.Username == "":
		report("sasl.username", "", "this key is missing: "+s.Mechanism+" needs a user")
	case s.Mechanism != "" && s.Password == "":
		report("sasl.password", "", "this key is missing: "+s.Mechanism+" needs a password")
	}
}

// Reads says what is consumed.
func (c *Config) Reads() (servers []string, group string, topics []string, pattern string) {
	for _, b := range c.Brokers {
		servers = append(servers, strings.ToLower(string(b)))
	}
	return servers, c.Group, c.Topics, c.TopicsRegex
}
