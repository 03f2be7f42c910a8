package parquet

import (
	"time"

	"github.com/stream-arrow/twgd/unit"
)

// Config is what a stream's configuration says under parquet. The tags are explained in package config.
type Config struct {
	To          unit.Location `yaml:"to" required:"it is where the files go" example:"file:///data/lake" doc:"A directory or a bucket; files lie below it in a folder for each stream, topic and partition."`
	Shared      bool          `yaml:"shared" default:"false" doc:"For a directory: true where every node sees the same one. A cluster of several nodes needs that."`
	Roll        RollConfig    `yaml:"roll" doc:"When a file is closed, whichever comes first."`
	Compression string        `yaml:"compression" default:"zstd" enum:"zstd|snappy|none" doc:"Compression of the columns."`
}

// RollConfig bounds a file.
type RollConfig struct {
	Bytes unit.Size     `yaml:"bytes" default:"128MiB" min:"64KiB" max:"16GiB" doc:"Bytes of the file."`
	Rows  int           `yaml:"rows" default:"1000000" min:"1" doc:"Rows."`
	Age   unit.Duration `yaml:"age" default:"1m" min:"1s" max:"1d" doc:"Time since the first record."`
}

// Check has nothing to add: each key is right or wrong by itself.
func (c *Config) Check(func(key, found, problem string)) {}

// Target is the folder of the stream's files.
func (c *Config) Target(stream string) string {
	if c.To == "" {
		return ""
	}
	return string(c.To.Below(stream))
}

// Apart reports whether each node would write to a directory of its own.
func (c *Config) Apart() bool { return c.To.Scheme() == "file" && !c.Shared }

// RollAge is how long a file may stay open.
func (c *Config) RollAge() time.Duration { return time.Duration(c.Roll.Age) }
