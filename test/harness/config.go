package harness

import (
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Stream is the configuration of one stream; what is empty is left to the program's defaults. Its fields are the keys of the file.
type Stream struct {
	Name   string `yaml:"name"`
	Source struct {
		Kafka Kafka `yaml:"kafka"`
	} `yaml:"source"`
	Raw        Raw            `yaml:"raw"`
	Budget     string         `yaml:"budget,omitempty"`
	Contract   map[string]any `yaml:"contract,omitempty,flow"`
	Dedup      *Dedup         `yaml:"dedup,omitempty,flow"`
	Sinks      []Sink         `yaml:"sinks,omitempty"`
	Quarantine map[string]any `yaml:"quarantine,omitempty"`
	Recovery   map[string]any `yaml:"recovery,omitempty"`
}

// Kafka is source.kafka.
type Kafka struct {
	Brokers    []string           `yaml:"brokers,flow"`
	Topics     []string           `yaml:"topics,omitempty,flow"`
	Regex      string             `yaml:"topics_regex,omitempty"`
	Group      string             `yaml:"group,omitempty"`
	Partitions map[string][]int32 `yaml:"partitions,omitempty,flow"`
	Start      string             `yaml:"start,omitempty"`
	Isolation  string             `yaml:"isolation,omitempty"`
	OnGap      string             `yaml:"on_gap,omitempty"`
	Session    string             `yaml:"session_timeout,omitempty"`
	Fetch      map[string]any     `yaml:"fetch,omitempty,flow"`
}

// Raw is raw.
type Raw struct {
	To          string `yaml:"to"`
	Compression string `yaml:"compression,omitempty"`
	Flush       Flush  `yaml:"flush,omitempty,flow"`
}

// Flush is raw.flush.
type Flush struct {
	Bytes   string `yaml:"bytes,omitempty"`
	Records int    `yaml:"records,omitempty"`
	Age     string `yaml:"age,omitempty"`
}

// Dedup is dedup.
type Dedup struct {
	Mode    string   `yaml:"mode"`
	Window  string   `yaml:"window,omitempty"`
	On      string   `yaml:"on,omitempty"`
	Fields  []string `yaml:"fields,omitempty,flow"`
	Timeout string   `yaml:"timeout,omitempty"`
	Entries int      `yaml:"max_entries,omitempty"`
}

// Deduplicate sets dedup, and declares the contract that dropping needs.
func (c *Stream) Deduplicate(d Dedup) {
	c.Dedup = &d
	if d.Mode == "drop" {
		c.Contract = map[string]any{"unique": true}
	}
}

// Sink is one of sinks.
type Sink struct {
	Name      string    `yaml:"name"`
	Parquet   *Parquet  `yaml:"parquet,omitempty,flow"`
	Postgres  *Postgres `yaml:"postgres,omitempty,flow"`
	Deadline  string    `yaml:"deadline,omitempty"`
	Queue     string    `yaml:"queue,omitempty"`
	MaxRecord string    `yaml:"max_record,omitempty"`
}

// Parquet is sinks.parquet.
type Parquet struct {
	To   string `yaml:"to"`
	Roll Roll   `yaml:"roll,omitempty,flow"`
}

// Roll is sinks.parquet.roll.
type Roll struct {
	Bytes string `yaml:"bytes,omitempty"`
	Rows  int    `yaml:"rows,omitempty"`
	Age   string `yaml:"age,omitempty"`
}

// Postgres is sinks.postgres.
type Postgres struct {
	DSN     string         `yaml:"dsn"`
	Table   string         `yaml:"table"`
	Create  *bool          `yaml:"create,omitempty"`
	ValueAs string         `yaml:"value_as,omitempty"`
	Batch   map[string]any `yaml:"batch,omitempty,flow"`
}

// Stream is a stream that reads topic into raw: by a group of the topic's name, with waits as short as tests like them.
func (s *Suite) Stream(topic Topic, raw string) Stream {
	var c Stream
	c.Name = "s"
	c.Source.Kafka = Kafka{Brokers: s.Kafka.Brokers(), Topics: []string{topic.Name}, Group: "g-" + topic.Name, Session: Session(),
		Fetch: map[string]any{"max_wait": "100ms"}}
	c.Raw = Raw{To: raw}
	return c
}

// ToPostgres is a sink over the table "orders".
func ToPostgres(name, dsn string) Sink {
	return Sink{Name: name, Postgres: &Postgres{DSN: dsn, Table: "orders"}}
}

// ToParquet is a sink that closes its files after a second.
func ToParquet(name, to string) Sink {
	return Sink{Name: name, Parquet: &Parquet{To: to, Roll: Roll{Age: "1s"}}, Deadline: "5s"}
}

// file writes the configuration of a node.
func (n *Node) file(t testing.TB) string {
	t.Helper()
	node := map[string]any{"id": n.ID, "data_dir": filepath.Join(n.dir, "data"), "http": "127.0.0.1:0", "log": map[string]any{"format": "json", "level": "debug"}}
	if n.Grace != "" {
		node["shutdown_grace"] = n.Grace
	}
	if n.Ordinal != nil {
		node["ordinal"] = n.Ordinal
	}
	all := map[string]any{"node": node, "streams": n.Streams}
	if len(n.Cluster) > 0 {
		all["cluster"] = n.Cluster
	}
	b, err := yaml.Marshal(all)
	Must(t, err)
	path := filepath.Join(n.dir, "twgd.yaml")
	Must(t, os.WriteFile(path, b, 0o600))
	return path
}
