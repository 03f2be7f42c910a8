package raw

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/record"
)

// headerPeek bounds what a header may take: the schema, and metadata of which names are the longest part. Whoever looks for a
// header reads so much.
const headerPeek = 8 << 10

// sealKey is the metadata entry that holds the checksum over all others and the sync marker. In the object layout the head of a
// chain is read out of a header alone; a flipped digit there would skip records or store them twice.
const sealKey = "twgd.crc32c"

// meta is what every header carries.
func meta(stream string, p record.Partition, first int64, nonce chain.Nonce) map[string]string {
	return map[string]string{
		"twgd.version": "1", "twgd.stream": stream, "twgd.cluster": p.Cluster, "twgd.topic": p.Topic,
		"twgd.topic_id": hex.EncodeToString(p.TopicID[:]), "twgd.partition": strconv.Itoa(int(p.Number)),
		"twgd.generation": strconv.Itoa(int(p.Generation)), "twgd.first": strconv.FormatInt(first, 10),
		"twgd.nonce": hex.EncodeToString(nonce[:]),
	}
}

// appendHeader seals the metadata and appends a header. The nonce serves as the container's sync marker, which has to be random
// and differ from file to file.
func appendHeader(dst []byte, codec avrofile.Codec, m map[string]string, nonce chain.Nonce) ([]byte, avrofile.Header, error) {
	all := maps.Clone(m)
	all["avro.schema"], all["avro.codec"] = schema, codec.Name()
	m[sealKey] = seal(all, nonce)
	begin := len(dst)
	dst = avrofile.AppendHeader(dst, schema, codec, m, nonce)
	size := len(dst) - begin
	if size > headerPeek {
		return dst, avrofile.Header{}, fmt.Errorf("the header takes %d bytes, more than %d: the names of stream, cluster and topic are too long", size, headerPeek)
	}
	return dst, avrofile.Header{Meta: all, Sync: nonce, Size: int64(size), Codec: codec}, nil
}

// seal is the CRC-32C, in hex digits, over keys and values in the order of the keys, a zero byte behind each, and the marker.
func seal(m map[string]string, sync [16]byte) string {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if k != sealKey {
			b = append(append(append(append(b, k...), 0), m[k]...), 0)
		}
	}
	return fmt.Sprintf("%08x", crc32.Checksum(append(b, sync[:]...), castagnoli))
}

// parseHeader reads the header of the segment of c that is named first, and refuses one that is damaged or another's.
func parseHeader(b []byte, stream string, c chainID, first int64) (avrofile.Header, error) {
	h, err := avrofile.ParseHeader(b)
	if err != nil {
		return h, fmt.Errorf("%w: the header: %v", avrofile.ErrDamaged, err)
	}
	if want := seal(h.Meta, h.Sync); h.Meta[sealKey] != want {
		return h, fmt.Errorf("%w: the header's CRC-32C is %s, its metadata has %q", avrofile.ErrDamaged, want, h.Meta[sealKey])
	}
	if v := h.Meta["twgd.version"]; v != "1" || h.Meta["avro.schema"] != schema {
		return h, fmt.Errorf("the segment is of version %q with another schema than this program knows: a newer one wrote it", v)
	}
	for k, want := range meta(stream, c.partition, first, chain.Nonce(h.Sync)) {
		if h.Meta[k] != want {
			return h, fmt.Errorf("%w: the header's %s is %q, and %q where it stands", avrofile.ErrDamaged, k, h.Meta[k], want)
		}
	}
	return h, nil
}

// stored is a commit as the store has got it.
type stored struct {
	chain.Link
	ours    bool
	epoch   int32
	written time.Time
	size    int64 // bytes that this call has written
}

// parseStored reads what the header of an object says of its commit.
func parseStored(h *avrofile.Header, first int64) (stored, error) {
	next, err := strconv.ParseInt(h.Meta["twgd.next"], 10, 64)
	if err != nil || next <= first {
		return stored{}, fmt.Errorf("%w: the header's next is %q", avrofile.ErrDamaged, h.Meta["twgd.next"])
	}
	epoch, err := strconv.ParseInt(h.Meta["twgd.leader_epoch"], 10, 32)
	if err != nil {
		return stored{}, fmt.Errorf("%w: the header's leader epoch is %q", avrofile.ErrDamaged, h.Meta["twgd.leader_epoch"])
	}
	written, err := time.Parse(time.RFC3339Nano, h.Meta["twgd.written"])
	if err != nil {
		return stored{}, fmt.Errorf("%w: the header's time is %q", avrofile.ErrDamaged, h.Meta["twgd.written"])
	}
	return stored{Link: chain.Link{First: first, Next: next, Nonce: chain.Nonce(h.Sync)}, epoch: int32(epoch), written: written}, nil
}
