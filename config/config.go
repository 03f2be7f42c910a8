// Package config turns one YAML file into a configuration: every mistake comes out at once, with its place in the file.
//
// An option exists once, as a field of a struct with tags. Decoding, defaults, checks, the JSON Schema, the annotated example,
// the effective configuration and the reference are all made from those tags by the same walk (spec.go), so that none of them
// can know an option that the others do not. The tags are
//
//	yaml      the key
//	doc       one sentence on what it does
//	default   the value where the key is left out, as it would be written
//	auto      in words, a default that is worked out from other keys
//	required  why the key cannot be left out
//	enum      the values allowed, with | between them
//	min, max  bounds, as they would be written
//	pattern   a regular expression that the text matches; form says the same in words
//	form      in words, what is allowed, where pattern or a check decides it
//	example   the value in the annotated example; a leading # leaves the line commented out
//	secret    the value is never printed
//
// Kinds of sources and sinks bring their own structs (Parts), which live in their own rooms.
package config

import "github.com/stream-arrow/twgd/unit"

// Config is a whole file, checked and with every default filled in. It is not changed after Load.
type Config struct {
	Node    Node     `yaml:"node" doc:"This process."`
	Cluster Cluster  `yaml:"cluster" doc:"The cluster that the node is part of."`
	Streams []Stream `yaml:"streams" doc:"What is moved from where to where. May be empty where cluster.size is above 0."`

	spec   *field
	hidden map[string]bool // paths whose values are secret because of where they come from
}

// Node describes the process.
type Node struct {
	ID            string        `yaml:"id" auto:"the host name" pattern:"^[A-Za-z0-9._-]{1,100}$" form:"up to 100 letters, digits, dots, hyphens and underscores" example:"node-1" doc:"The node's name in names of files, in logs and in the status."`
	DataDir       string        `yaml:"data_dir" default:"/var/lib/twgd" pattern:"." form:"a directory" doc:"Where the node keeps its lock, its socket and what it knows of itself."`
	Mode          string        `yaml:"mode" default:"both" enum:"ingest|both|recovery" doc:"ingest moves records, and leaves what a sink missed alone; both also recovers it; recovery does nothing else, and needs a cluster."`
	HTTP          unit.Address  `yaml:"http" default:"127.0.0.1:7480" doc:"Address of /live, /ready, /metrics, /status and the status page."`
	ShutdownGrace unit.Duration `yaml:"shutdown_grace" default:"25s" min:"1s" max:"1h" doc:"How long a graceful end may take."`
	Log           Log           `yaml:"log" doc:"The log, one line an event."`
	Ordinal       Ordinal       `yaml:"ordinal" default:"auto" doc:"The node's number; the lowest hold the votes. auto is the number that ends node.id, if one does; a node of mode recovery has none."`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug|info|warn|error" doc:"The least level that is written."`
	Format string `yaml:"format" default:"text" enum:"text|json" doc:"Lines for people or for machines."`
}

// Stream moves records from one source into raw, and from there into sinks.
type Stream struct {
	Name       string     `yaml:"name" required:"it names the stream's folders, metrics and state" pattern:"^[a-z0-9_-]{1,100}$" form:"up to 100 of a-z, 0-9, _ and -" example:"orders" doc:"The stream's name. Another name is another stream, which begins anew."`
	Source     Source     `yaml:"source" required:"a stream reads from somewhere" doc:"Where the records come from; exactly one kind."`
	Raw        Raw        `yaml:"raw" required:"records are made durable here before the source is told that they are taken" doc:"The durable store that every record goes into first."`
	Budget     unit.Size  `yaml:"budget" default:"256MiB" min:"1MiB" doc:"Bytes in flight between the source and raw, over all partitions of the stream."`
	Contract   Contract   `yaml:"contract" doc:"What the stream's records are known to keep."`
	Dedup      Dedup      `yaml:"dedup" doc:"What becomes of records whose content another record had before. Only a cluster can tell, of one node at least."`
	Sinks      []Sink     `yaml:"sinks" doc:"Where the records go from raw; may be empty, raw alone is an archive."`
	Quarantine Quarantine `yaml:"quarantine" doc:"Where records that a sink refuses for good can be looked at."`
	Recovery   Recovery   `yaml:"recovery" doc:"How what a sink missed is filled in."`
}

// Raw is the gate's store.
type Raw struct {
	To          unit.Location `yaml:"to" required:"it is where raw lies" example:"file:///var/lib/twgd/raw" doc:"A directory, or a bucket: s3://bucket/prefix?region=…&endpoint=…&use_path_style=true."`
	Shared      bool          `yaml:"shared" default:"false" doc:"For a directory: true where every node sees the same one. Each commit then is a file of its own, as in a bucket."`
	Compression string        `yaml:"compression" default:"zstd" enum:"zstd|snappy|deflate|null" doc:"The Avro codec of the segments. DuckDB and polars read null, deflate and snappy only."`
	Flush       Flush         `yaml:"flush" doc:"When a commit is made, whichever comes first."`
}

// Flush bounds a commit.
type Flush struct {
	Bytes   unit.Size     `yaml:"bytes" default:"16MiB" min:"1KiB" max:"1GiB" doc:"Bytes before compression."`
	Records int           `yaml:"records" default:"50000" min:"1" doc:"Records."`
	Age     unit.Duration `yaml:"age" auto:"100ms in a directory, 5s on object storage, where each commit is a request" min:"1ms" max:"1d" example:"#100ms" doc:"Time since the first record: the least delay of the source's acknowledgement."`
}

// Sink is one destination of a stream, with the kind's own options.
type Sink struct {
	Name      string        `yaml:"name" required:"it names the sink's coverage and metrics" pattern:"^[a-z0-9_-]{1,100}$" form:"up to 100 of a-z, 0-9, _ and -" doc:"The sink's name within the stream. Another name is another sink, which is filled from raw's beginning."`
	Deadline  unit.Duration `yaml:"deadline" auto:"60s, and where files roll by age five times that age" min:"1s" max:"7d" example:"#5m" doc:"How long after raw stored a record the sink may take to write it; what is older is left to recovery."`
	Queue     unit.Size     `yaml:"queue" default:"64MiB" min:"1MiB" doc:"What may wait for the sink in memory, open files and row groups included."`
	MaxRecord unit.Size     `yaml:"max_record" default:"64MiB" min:"1B" doc:"Larger records are quarantined for this sink; raw has them whole."`

	Choice[SinkOptions] `choice:"sink"`
}

// Source is one of the kinds of sources.
type Source struct {
	Choice[SourceOptions] `choice:"source"`
}

// Quarantine is the view of rejected records. It may shed and never blocks.
type Quarantine struct {
	To     unit.Location `yaml:"to" auto:"the folder quarantine in node.data_dir" example:"file:///var/lib/twgd/quarantine" doc:"A directory or a bucket, as in raw.to."`
	Budget unit.Size     `yaml:"budget" default:"64MiB" min:"64KiB" doc:"What may wait to be written; beyond it entries are shed and counted."`
}

// Recovery replays from raw.
type Recovery struct {
	Quarantine string `yaml:"quarantine" default:"rehydrate" enum:"rehydrate|skip" doc:"Whether a replay writes quarantine entries too; with skip the view stays incomplete."`
	Window     int    `yaml:"window" default:"100000" min:"1000" max:"100000000" doc:"Offsets in a window of recovery, and in a file that fills a hole."`
}
