package duplicates

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/record"
)

// kind says what may be found under a name.
type kind string

const (
	kindObject kind = "object" // one block, whole
	kindFile   kind = "file"   // grows by a block an append; its end may be torn
	kindAside  kind = "aside"  // one block, whole, of offsets in the middle of what the file in front of it has: that one goes on behind it
)

// head is what a header says.
type head struct {
	partition record.Partition
	kind      kind
}

// sealKey is the metadata entry with the checksum over all others and the sync marker.
const sealKey = "twgd.crc32c"

func (w *Writer) meta(p record.Partition, first int64, k kind) map[string]string {
	return map[string]string{
		"twgd.version": "1", "twgd.stream": w.opt.Stream, "twgd.cluster": p.Cluster, "twgd.topic": p.Topic,
		"twgd.topic_id": hex.EncodeToString(p.TopicID[:]), "twgd.partition": strconv.Itoa(int(p.Number)),
		"twgd.generation": strconv.Itoa(int(p.Generation)), "twgd.first": strconv.FormatInt(first, 10),
		"twgd.writer": w.opt.Node + "~" + w.opt.Instance, "twgd.kind": string(k),
	}
}

// appendHeader seals the metadata and appends a header.
func appendHeader(dst []byte, meta map[string]string, c avrofile.Codec, sync [16]byte) ([]byte, avrofile.Header) {
	all := maps.Clone(meta)
	all["avro.schema"], all["avro.codec"] = schema, c.Name()
	meta[sealKey] = seal(all, sync)
	begin := len(dst)
	dst = avrofile.AppendHeader(dst, schema, c, meta, sync)
	return dst, avrofile.Header{Meta: all, Sync: sync, Size: int64(len(dst) - begin), Codec: c}
}

// seal is the CRC-32C, in hex digits, over keys and values in the order of the keys, a zero byte behind each, and the marker.
func seal(meta map[string]string, sync [16]byte) string {
	h := crc32.New(castagnoli)
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		if k != sealKey {
			fmt.Fprintf(h, "%s\x00%s\x00", k, meta[k])
		}
	}
	h.Write(sync[:])
	return fmt.Sprintf("%08x", h.Sum32())
}

// parseHeader reads the header of what is named first.
func parseHeader(b []byte, stream string, first int64) (avrofile.Header, head, error) {
	h, err := avrofile.ParseHeader(b)
	if err != nil {
		return h, head{}, fmt.Errorf("%w: the header: %v", avrofile.ErrDamaged, err)
	}
	if want := seal(h.Meta, h.Sync); h.Meta[sealKey] != want {
		return h, head{}, fmt.Errorf("%w: the header's CRC-32C is %s, its metadata has %q", avrofile.ErrDamaged, want, h.Meta[sealKey])
	}
	if v := h.Meta["twgd.version"]; v != "1" || h.Meta["avro.schema"] != schema {
		return h, head{}, fmt.Errorf("the notes are of version %q with another schema than this program knows: a newer one wrote them", v)
	}
	if s, f := h.Meta["twgd.stream"], h.Meta["twgd.first"]; s != stream || f != strconv.FormatInt(first, 10) {
		return h, head{}, fmt.Errorf("%w: the header is that of stream %q and first offset %s", avrofile.ErrDamaged, s, f)
	}
	p, err := parsePartition(h.Meta)
	if err != nil {
		return h, head{}, fmt.Errorf("%w: the header: %v", avrofile.ErrDamaged, err)
	}
	return h, head{p, kind(h.Meta["twgd.kind"])}, nil
}

func parsePartition(meta map[string]string) (p record.Partition, err error) {
	number, nerr := strconv.ParseInt(meta["twgd.partition"], 10, 32)
	generation, gerr := strconv.ParseInt(meta["twgd.generation"], 10, 32)
	p = record.Partition{Cluster: meta["twgd.cluster"], Topic: meta["twgd.topic"], Number: int32(number), Generation: int32(generation)}
	if p.TopicID, err = record.ParseTopicID(meta["twgd.topic_id"]); err == nil && (nerr != nil || gerr != nil) {
		err = fmt.Errorf("it names no partition")
	}
	return p, err
}
