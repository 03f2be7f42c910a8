package postgres

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stream-arrow/twgd/unit"
)

// Config is what a stream's configuration says under postgres. The tags are explained in package config.
type Config struct {
	DSN     string      `yaml:"dsn" required:"it is where the database is" secret:"true" pattern:"^(postgres|postgresql)://|=" form:"postgres://user:password@host:5432/database or host=… dbname=…" example:"${PG_DSN:-postgres://localhost:5432/postgres}" doc:"How to connect, as a URL or as key=value pairs."`
	Table   string      `yaml:"table" required:"it is what the rows go into" pattern:"." form:"a name, or schema.name" example:"orders" doc:"The table, with its schema where it is not the session's first. Where it has rows but no unique index on _twg_record_id, only the sink that wrote them, under its former name, may go on."`
	Create  bool        `yaml:"create" default:"true" doc:"Whether the table is made where it is missing at the first start."`
	ValueAs string      `yaml:"value_as" default:"bytea" enum:"bytea|text|jsonb" doc:"The type of __kafka_value. With text and jsonb a value that the type cannot hold is quarantined."`
	Batch   BatchConfig `yaml:"batch" doc:"When a transaction is committed, whichever comes first."`
}

// BatchConfig bounds a transaction.
type BatchConfig struct {
	Rows int           `yaml:"rows" default:"10000" min:"1" max:"10000000" doc:"Rows."`
	Age  unit.Duration `yaml:"age" default:"50ms" min:"1ms" max:"1h" doc:"Time since the first record."`
}

// Check has nothing to add: each key is right or wrong by itself.
func (c *Config) Check(func(key, found, problem string)) {}

// Apart is false: a database is one for all nodes.
func (c *Config) Apart() bool { return false }

// RollAge is 0: rows do not wait in a file.
func (c *Config) RollAge() time.Duration { return 0 }

// Target is the server, the database and the table. Where the DSN leaves the server or the database to the environment, whatever
// else it says stands for them, passwords excepted. A stream's name plays no part, since all rows of a table lie together.
func (c *Config) Target(string) string {
	if c.DSN == "" || c.Table == "" {
		return ""
	}
	said := c.parameters()
	if said["host"] != "" && said["dbname"] != "" {
		return "postgres://" + said["host"] + ":" + said["port"] + "/" + said["dbname"] + "/" + c.qualified()
	}
	var rest []string
	for key, value := range said {
		if key != "password" && key != "sslpassword" {
			rest = append(rest, key+"="+value)
		}
	}
	slices.Sort(rest)
	return "postgres:" + strings.Join(rest, " ") + "/" + c.qualified()
}

// parameters are what the DSN says, in the words of its key=value form.
func (c *Config) parameters() map[string]string {
	said := map[string]string{"port": "5432"}
	if _, rest, ok := strings.Cut(c.DSN, "://"); ok {
		readURL(rest, said)
	} else {
		for _, m := range regexp.MustCompile(`(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|\S*)`).FindAllStringSubmatch(c.DSN, -1) {
			said[m[1]] = strings.Trim(m[2], "'")
		}
	}
	said["host"] = strings.ToLower(said["host"])
	return said
}

// readURL takes a DSN apart behind its scheme. It may name several hosts, each with a port, which package url does not read.
func readURL(rest string, said map[string]string) {
	rest, query, _ := strings.Cut(rest, "?")
	servers, database, _ := strings.Cut(rest, "/")
	servers = servers[strings.LastIndexByte(servers, '@')+1:]
	said["host"], said["dbname"] = servers, database
	if i := strings.LastIndexByte(servers, ':'); i >= 0 && !strings.ContainsAny(servers, ",") && !strings.HasSuffix(servers, "]") {
		said["host"], said["port"] = servers[:i], servers[i+1:]
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return // what cannot be read is refused by the database's client
	}
	for key := range values {
		said[key] = values.Get(key)
	}
}

// qualified is the table with its schema; public is what a session begins with where nobody has changed it.
func (c *Config) qualified() string {
	if strings.Contains(c.Table, ".") {
		return c.Table
	}
	return "public." + c.Table
}
