package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/raw"
)

func rawCommand() *cobra.Command {
	return group("raw", "Look into raw, or let a partition go on that is held", "  twgd raw ls -c twgd.yaml",
		rawListCommand(), rawCatCommand(), rawVerifyCommand(), rawResumeCommand())
}

// reading makes a command that looks into the stores of one stream.
func reading(cmd *cobra.Command, f func(cmd *cobra.Command, s *stores, partitions []record.Partition) error) *cobra.Command {
	var w which
	cmd.Args = usage(cobra.NoArgs)
	file, stream := configFlag(cmd), streamFlag(cmd)
	cmd.Flags().StringVar(&w.topic, "topic", "", "this topic only")
	cmd.Flags().Int32Var(&w.partition, "partition", -1, "this partition only")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		cfg, err := loadConfig(*file)
		if err != nil {
			return err
		}
		c, err := one(cfg, *stream)
		if err != nil {
			return err
		}
		s, err := openStores(cmd.Context(), c)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		partitions, err := s.partitions(cmd.Context(), w)
		if err != nil {
			return err
		}
		return f(cmd, s, partitions)
	}
	return cmd
}

// chainInfo is a chain in `raw ls`.
type chainInfo struct {
	Topic      string        `json:"topic"`
	TopicID    string        `json:"topic_id"`
	Partition  int32         `json:"partition"`
	Generation int32         `json:"generation"`
	Genesis    int64         `json:"genesis"`
	Next       int64         `json:"next"`
	Bytes      int64         `json:"bytes"`
	Segments   []segmentInfo `json:"segments"`
}

type segmentInfo struct {
	Key   string `json:"key"`
	First int64  `json:"first"`
	Bytes int64  `json:"bytes"`
}

func rawListCommand() *cobra.Command {
	var each *bool
	cmd := reading(&cobra.Command{Use: "ls -c FILE", Short: "List the chains in raw", Example: "  twgd raw ls -c twgd.yaml --topic orders --segments"},
		func(cmd *cobra.Command, s *stores, partitions []record.Partition) error {
			list := []chainInfo{}
			for _, p := range partitions {
				c, err := s.chain(cmd.Context(), p)
				if err != nil {
					return damagedExit(err)
				}
				list = append(list, c)
			}
			return show(cmd, list, func(to io.Writer) error { return writeChains(to, list, *each) })
		})
	each = cmd.Flags().Bool("segments", false, "list every object or file too")
	return cmd
}

func (s *stores) chain(ctx context.Context, p record.Partition) (chainInfo, error) {
	head, err := s.raw.Head(ctx, p)
	if err != nil {
		return chainInfo{}, err
	}
	c := chainInfo{p.Topic, hex.EncodeToString(p.TopicID[:]), p.Number, p.Generation, head.Genesis, head.Next, 0, []segmentInfo{}}
	segments, err := s.raw.Segments(ctx, p)
	for _, g := range segments {
		c.Bytes += g.Size
		c.Segments = append(c.Segments, segmentInfo{g.Key, g.First, g.Size})
	}
	return c, err
}

func writeChains(to io.Writer, list []chainInfo, each bool) error {
	w := tabwriter.NewWriter(to, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "topic\tid\tpartition\toffsets\tsegments\tbytes")
	for _, c := range list {
		fmt.Fprintf(w, "%s\t%s\t%d\t[%d, %d)\t%d\t%d\n", c.Topic, c.TopicID[:8], c.Partition, c.Genesis, c.Next, len(c.Segments), c.Bytes)
		for _, g := range c.Segments {
			if each {
				fmt.Fprintf(w, "\t\t\t%d\t%s\t%d\n", g.First, g.Key, g.Bytes)
			}
		}
	}
	return w.Flush()
}

func rawCatCommand() *cobra.Command {
	var from, to, limit *int64
	cmd := reading(&cobra.Command{
		Use: "cat -c FILE", Short: "Print the records in raw, one JSON object a line",
		Long: "Prints one JSON object a record, in the order of offsets within each partition. Bytes that are no UTF-8 are printed as\n" +
			"key_b64 or value_b64. Ranges that raw records as lost are named on standard error.",
		Example: "  twgd raw cat -c twgd.yaml --topic orders --partition 0 --from 1000 --limit 10",
	}, func(cmd *cobra.Command, s *stores, partitions []record.Partition) error {
		if err := offsets(*from, *to); err != nil {
			return err
		}
		if *limit < 0 {
			return fail(exitUsage, fmt.Errorf("--limit %d: it is a number of records, and 0 is none", *limit))
		}
		c := &cat{out: bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16), gaps: cmd.ErrOrStderr(), left: *limit}
		for _, p := range partitions {
			err := s.raw.Read(cmd.Context(), p, checkpoint.Span{From: *from, To: *to}, c.print(p))
			if errors.Is(err, errEnough) {
				break
			}
			if err != nil {
				return errors.Join(damagedExit(err), c.out.Flush())
			}
		}
		return c.out.Flush()
	})
	f := cmd.Flags()
	from = f.Int64("from", 0, "the first offset")
	to = f.Int64("to", math.MaxInt64, "the offset behind the last one")
	limit = f.Int64("limit", 0, "end after so many records; 0: none")
	return cmd
}

var errEnough = errors.New("enough")

// cat prints records.
type cat struct {
	out  *bufio.Writer
	gaps io.Writer
	left int64
}

func (c *cat) print(p record.Partition) func(*record.Batch) error {
	ids := record.NewHasher(p)
	return func(b *record.Batch) error {
		if b.Gap != "" {
			fmt.Fprintf(c.gaps, "twgd: %v: the offsets [%d, %d) are lost: %s\n", p, b.First, b.Next, b.Gap)
		}
		for i := range b.Records {
			line, err := json.Marshal(newShown(p, &b.Records[i], ids.ID(&b.Records[i])))
			if err != nil {
				return err
			}
			if _, err := c.out.Write(append(line, '\n')); err != nil {
				return err
			}
			if c.left--; c.left == 0 {
				return errEnough
			}
		}
		return nil
	}
}

// shown is a record as JSON. Where the bytes of a field are no UTF-8 its base64 twin stands for it; null is null.
type shown struct {
	RecordID      string        `json:"record_id"`
	Topic         string        `json:"topic"`
	TopicID       string        `json:"topic_id"`
	Partition     int32         `json:"partition"`
	Generation    int32         `json:"generation,omitempty"`
	Offset        int64         `json:"offset"`
	Timestamp     *int64        `json:"timestamp"` // milliseconds
	TimestampType int8          `json:"timestamp_type"`
	LeaderEpoch   int32         `json:"leader_epoch"`
	ProducerID    int64         `json:"producer_id"`
	ProducerEpoch int16         `json:"producer_epoch"`
	Transactional bool          `json:"transactional"`
	Headers       []shownHeader `json:"headers"`
	Key           *text         `json:"key,omitempty"`
	KeyB64        string        `json:"key_b64,omitempty"`
	Value         *text         `json:"value,omitempty"`
	ValueB64      string        `json:"value_b64,omitempty"`
}

type shownHeader struct {
	Key      *text  `json:"key,omitempty"`
	KeyB64   string `json:"key_b64,omitempty"`
	Value    *text  `json:"value,omitempty"`
	ValueB64 string `json:"value_b64,omitempty"`
}

// text is a string or null.
type text struct {
	s    string
	null bool
}

// MarshalJSON writes null, or a string as it is, without escapes for HTML.
func (t *text) MarshalJSON() ([]byte, error) {
	if t.null {
		return []byte("null"), nil
	}
	return json.Marshal(t.s)
}

// split is b as text, or as base64 where it is none.
func split(b []byte) (*text, string) {
	if utf8.Valid(b) {
		return &text{string(b), b == nil}, ""
	}
	return nil, base64.StdEncoding.EncodeToString(b)
}

func newShown(p record.Partition, r *record.Record, id record.ID) shown {
	s := shown{RecordID: id.String(), Topic: p.Topic, TopicID: hex.EncodeToString(p.TopicID[:]), Partition: p.Number, Generation: p.Generation,
		Offset: r.Offset, TimestampType: r.TimestampType, LeaderEpoch: r.LeaderEpoch, ProducerID: r.ProducerID, ProducerEpoch: r.ProducerEpoch,
		Transactional: r.Transactional, Headers: []shownHeader{}}
	if r.TimestampType != record.TimestampNone {
		s.Timestamp = &r.Timestamp
	}
	s.Key, s.KeyB64 = split(r.Key)
	s.Value, s.ValueB64 = split(r.Value)
	for _, h := range r.Headers {
		var g shownHeader
		g.Key, g.KeyB64 = split([]byte(h.Key))
		if h.Key == "" {
			g.Key = &text{}
		}
		g.Value, g.ValueB64 = split(h.Value)
		s.Headers = append(s.Headers, g)
	}
	return s
}

// findingInfo is a finding of `raw verify`.
type findingInfo struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Kind      string `json:"kind"`
	Path      string `json:"path"`
	Byte      *int64 `json:"byte"`
	From      *int64 `json:"from"` // the offsets that cannot be read for it
	To        *int64 `json:"to"`   // null where nothing that is stored says where they end
	Problem   string `json:"problem"`
}

type verifyResult struct {
	Partitions int           `json:"partitions"`
	Findings   []findingInfo `json:"findings"`
}

func rawVerifyCommand() *cobra.Command {
	return reading(&cobra.Command{
		Use: "verify -c FILE", Short: "Read all of raw, and the notes of dropped duplicates beside it, and name what is damaged, with its place",
		Example: "  twgd raw verify -c twgd.yaml --topic orders",
	}, func(cmd *cobra.Command, s *stores, partitions []record.Partition) error {
		out := verifyResult{len(partitions), []findingInfo{}}
		notes := duplicates.NewReader(s.bucket, s.cfg.Name)
		damaged := 0
		p := newProgress(cmd)
		for i, part := range partitions {
			p.tell(fmt.Sprintf("verifying %v, %d of %d", part, i+1, len(partitions)))
			err := s.raw.Verify(cmd.Context(), part, func(f raw.Finding) {
				out.Findings = append(out.Findings, newFinding(f))
				if f.Kind == raw.Damaged {
					damaged++
				}
			})
			if err == nil {
				err = notes.Verify(cmd.Context(), part, func(key string, fault error) {
					out.Findings = append(out.Findings, findingInfo{Topic: part.Topic, Partition: part.Number, Kind: raw.Damaged.String(), Path: key, Problem: fault.Error()})
					damaged++
				})
			}
			if err != nil {
				return fmt.Errorf("verifying %v: %w", part, err)
			}
		}
		p.done()
		if err := show(cmd, out, out.text); err != nil || damaged == 0 {
			return err
		}
		return fail(exitDamaged, fmt.Errorf("%d places in raw are damaged", damaged))
	})
}

func newFinding(f raw.Finding) findingInfo {
	out := findingInfo{Topic: f.Partition.Topic, Partition: f.Partition.Number, Kind: f.Kind.String(), Path: f.Path, Problem: f.Problem}
	if f.Byte >= 0 {
		out.Byte = &f.Byte
	}
	if !f.Span.Empty() {
		out.From = &f.Span.From
	}
	if !f.Span.Empty() && f.Span.To != raw.OpenEnd {
		out.To = &f.Span.To
	}
	return out
}

func (r *verifyResult) text(to io.Writer) error {
	for _, f := range r.Findings {
		place := ""
		if f.Byte != nil {
			place = fmt.Sprintf(" at byte %d", *f.Byte)
		}
		fmt.Fprintf(to, "%s/%d: %s: %s%s: %s\n", f.Topic, f.Partition, f.Kind, f.Path, place, f.Problem)
	}
	if len(r.Findings) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(to, "%d chains are whole\n", r.Partitions)
	return err
}

func rawResumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume -c FILE --topic T --partition P --skip-to N", Short: "Let a partition go on that is held, behind a gap",
		Long: "Writes a gap from raw's head up to offset N and lets reading go on there. What lies between is given up for good, and the gap is on\n" +
			"record. `twgd status` shows what is held and why, and names N. An N that gives up what can still be read, or what the log has not\n" +
			"got yet, is refused (5) unless --force insists. Then it waits to see whether the partition is read.",
		Example: "  twgd raw resume -c twgd.yaml --stream orders --topic orders --partition 3 --skip-to N   # N: the offset that `twgd status` names", Args: usage(cobra.NoArgs),
	}
	file, stream := configFlag(cmd), streamFlag(cmd)
	var a resumeArgs
	f := cmd.Flags()
	f.StringVar(&a.Topic, "topic", "", "the topic")
	f.Int32Var(&a.Partition, "partition", -1, "the partition")
	f.Int64Var(&a.SkipTo, "skip-to", -1, "the offset to go on at: the one that status names")
	f.BoolVar(&a.Force, "force", false, "insist on an offset behind which more is given up than what is lost")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if a.Stream = *stream; a.Topic == "" || a.Partition < 0 || a.SkipTo < 0 {
			return fail(exitUsage, fmt.Errorf("--topic, --partition and --skip-to are needed; see `%s --help`", cmd.CommandPath()))
		}
		c, _, err := dial(*file)
		if err != nil {
			return err
		}
		body, err := c.Call(cmd.Context(), "resume", a, nil)
		if err != nil {
			return err
		}
		var r resumeResult
		if err := json.Unmarshal(body, &r); err != nil {
			return err
		}
		return show(cmd, r, func(to io.Writer) error {
			_, err := fmt.Fprintf(to, "%s goes on at %d; the gap %v is on record\n%s\n", r.Partition, r.Gap.To, r.Gap, r.after())
			return err
		})
	}
	return cmd
}

// after is what came of it.
func (r *resumeResult) after() string {
	switch r.State {
	case "held":
		return "it is held again: " + r.Held
	case "reading":
		return "it is read"
	}
	return "nothing was heard of it yet; `twgd status` shows how it goes on"
}
