package gossip

// MaxMeta is how many bytes the metadata of a member may have: memberlist's limit, above which it panics.
const MaxMeta = 512

// Meta is what a member says of itself.
type Meta struct {
	ServerID    string // name~birth, or empty: none yet
	Name        string
	Ordinal     int      // -1: none
	Address     string   // host:port of its wire
	Founding    [16]byte // zero: none yet
	Incarnation uint64
	Confirmed   bool
	Intent      uint8 // roster.Intent
	Nonce       uint64
}
