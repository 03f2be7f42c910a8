package harness

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/twmb/avro/ocf"
)

// Chain is what an Avro reader finds of one partition in raw.
type Chain struct {
	Path     string // T/P
	Files    []string
	First    int64 // where the chain begins
	Next     int64 // where it ends; -1 where it has no segment
	Commits  int
	Records  []Record
	Gaps     []Gap
	Producer []Stamp // beside Records
}

// Gap is a range that raw says is lost.
type Gap struct {
	From, To int64
	Reason   string
}

// Stamp is what a record says of its producer.
type Stamp struct {
	ProducerID    int64
	Transactional bool
}

// entry is an entry of a segment, as docs/formats/raw.md draws it.
type entry struct {
	Kind          string  `avro:"kind"`
	Offset        int64   `avro:"__kafka_offset"`
	Timestamp     *int64  `avro:"__kafka_timestamp"`
	TimestampType int32   `avro:"__kafka_timestamp_type"`
	LeaderEpoch   int32   `avro:"__kafka_leader_epoch"`
	ProducerID    int64   `avro:"__kafka_producer_id"`
	ProducerEpoch int32   `avro:"__kafka_producer_epoch"`
	Transactional bool    `avro:"__kafka_transactional"`
	Headers       []head  `avro:"__kafka_headers"`
	Key           *[]byte `avro:"__kafka_key"`
	Value         *[]byte `avro:"__kafka_value"`
	Mark          *mark   `avro:"mark"`
}

type head struct {
	Key      string  `avro:"key"`
	Value    *[]byte `avro:"value"`
	KeyBytes *[]byte `avro:"key_bytes"`
}

type mark struct {
	Next    int64   `avro:"next"`
	Written int64   `avro:"written"`
	CRC     int64   `avro:"crc32c"`
	Reason  *string `avro:"reason"`
}

// Raw reads a stream's raw store with a general Avro library: every chain must be contiguous, every file named by its first offset. The
// program must not be writing it.
func (s *Suite) Raw(t testing.TB, location, stream string) map[string]*Chain {
	t.Helper()
	chains, err := readRaw(filepath.Join(s.Local(t, location), stream), false)
	Must(t, err)
	return chains
}

// RawAfterKill is Raw, but the last file of a chain may end in the middle of a write, as a killed process leaves it.
func (s *Suite) RawAfterKill(t testing.TB, location, stream string) map[string]*Chain {
	t.Helper()
	chains, err := readRaw(filepath.Join(s.Local(t, location), stream), true)
	Must(t, err)
	return chains
}

// RawRecords are the records of all chains.
func (s *Suite) RawRecords(t testing.TB, location, stream string) (all []Record) {
	t.Helper()
	for _, c := range s.Raw(t, location, stream) {
		all = append(all, c.Records...)
	}
	return all
}

// readRaw reads a folder of chains: T/P/<first>.avro.
func readRaw(dir string, torn bool) (map[string]*Chain, error) {
	chains := map[string]*Chain{}
	folders, err := filepath.Glob(filepath.Join(dir, "*", "*", "_genesis"))
	if err != nil {
		return nil, err
	}
	for _, genesis := range folders {
		folder := filepath.Dir(genesis)
		c, err := readChain(folder, torn)
		if err != nil {
			return nil, fmt.Errorf("raw %s: %w", folder, err)
		}
		c.Path = filepath.Base(filepath.Dir(folder)) + "/" + filepath.Base(folder)
		chains[c.Path] = c
	}
	return chains, nil
}

func readChain(folder string, torn bool) (*Chain, error) {
	number, _, _ := strings.Cut(filepath.Base(folder), ".")
	partition, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return nil, err
	}
	c := &Chain{First: -1, Next: -1}
	if c.Files, err = filepath.Glob(filepath.Join(folder, "*.avro")); err != nil {
		return nil, err
	}
	slices.Sort(c.Files)
	for i, path := range c.Files {
		if err := c.read(path, int32(partition)); err != nil && !(torn && i == len(c.Files)-1 && errors.Is(err, errTorn)) {
			return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	return c, nil
}

// errTorn is what cannot be read: the end of a write that was cut off, or damage.
var errTorn = errors.New("unreadable")

// read adds one file.
func (c *Chain) read(path string, partition int32) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := ocf.NewReader(f)
	if err != nil {
		return fmt.Errorf("%w in its header: %w", errTorn, err)
	}
	defer r.Close()
	name, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(path), ".avro"), 10, 64)
	if err != nil {
		return err
	}
	for begun := false; ; {
		var e entry
		if err := r.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%w behind offset %d: %w", errTorn, c.Next, err)
		}
		if err := c.add(e, partition); err != nil {
			return err
		}
		if e.Kind == "cursor" && !begun {
			if begun = true; e.Offset != name {
				return fmt.Errorf("its first commit begins at %d", e.Offset)
			}
		}
	}
}

func (c *Chain) add(e entry, partition int32) error {
	switch e.Kind {
	case "record":
		r := Record{Partition: partition, Offset: e.Offset, Timestamp: -1, TimestampType: int8(e.TimestampType), Key: bytesOf(e.Key), Value: bytesOf(e.Value)}
		if e.Timestamp != nil {
			r.Timestamp = *e.Timestamp
		}
		for _, h := range e.Headers {
			k := h.Key
			if h.KeyBytes != nil {
				k = string(*h.KeyBytes)
			}
			r.Headers = append(r.Headers, Header{k, bytesOf(h.Value)})
		}
		c.Records, c.Producer = append(c.Records, r), append(c.Producer, Stamp{e.ProducerID, e.Transactional})
	case "gap":
		g := Gap{From: e.Offset, To: e.Mark.Next}
		if e.Mark.Reason != nil {
			g.Reason = *e.Mark.Reason
		}
		c.Gaps = append(c.Gaps, g)
	case "cursor":
		if c.Next >= 0 && e.Offset != c.Next {
			return fmt.Errorf("a commit begins at %d where the last one ended at %d", e.Offset, c.Next)
		}
		if c.First < 0 {
			c.First = e.Offset
		}
		c.Next = e.Mark.Next
		c.Commits++
	}
	return nil
}

func bytesOf(b *[]byte) []byte {
	switch {
	case b == nil:
		return nil
	case *b == nil:
		return []byte{}
	}
	return *b
}

// Local is a directory with what lies at a location: itself for file://, a copy for s3://.
func (s *Suite) Local(t testing.TB, location string) string {
	t.Helper()
	u, err := url.Parse(location)
	Must(t, err)
	if u.Scheme == "file" {
		return u.Path
	}
	dir := Dir(t)
	Must(t, s.copyBucket(t, u.Host, strings.Trim(u.Path, "/"), dir))
	return dir
}

// copyBucket brings the objects below a prefix into dir.
func (s *Suite) copyBucket(t testing.TB, bucket, prefix, dir string) error {
	client := s.S3.Client()
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			return fmt.Errorf("list %s: %w", bucket, err)
		}
		for _, o := range page.Contents {
			if err := copyObject(t, client, bucket, *o.Key, filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(*o.Key, prefix)))); err != nil {
				return fmt.Errorf("copy %s: %w", *o.Key, err)
			}
		}
	}
	return nil
}

func copyObject(t testing.TB, client *s3.Client, bucket, key, path string) error {
	got, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return err
	}
	defer got.Body.Close()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, got.Body)
	return errors.Join(err, f.Close())
}

// Bucket is the location of a fresh bucket's prefix.
func (s *Suite) Bucket(t testing.TB, prefix string) string {
	t.Helper()
	name, err := s.S3.NewBucket(t.Context())
	Must(t, err)
	return s.S3.URL(name, prefix)
}

// Digests are the SHA-256 sums of the files below a directory, by path: whether anything there was changed.
func Digests(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = sum(b)
		return err
	}))
	return out
}
