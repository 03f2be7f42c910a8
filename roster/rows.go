package roster

// Facts are what founding wrote, and what changed of it.
type Facts struct {
	Cluster     string   // name of the cluster
	Founding    [16]byte // random, made at founding; all zero: not founded
	Incarnation uint64   // from 1; raised by each restore
	Confirmed   bool     // a founding that is not confirmed yields to one that is
	DedupKey    [32]byte
}

// Member is a node that has checked in.
type Member struct {
	ID, Name, Birth string
	Ordinal         int    // -1: none
	Joined          uint64 // order of joining, from 1
	Addr            string
}

// Mark is a committed intent of one process, or the grant that answers it.
type Mark struct {
	Intent Intent
	Nonce  uint64 // of the process
}

// Rows is a copy of the table's rows, safe to keep.
type Rows struct {
	Facts   Facts
	Members map[string]Member
	Marks   map[string]Mark // id → what its process has announced
	Grants  map[string]Mark // id → the mark that was granted; always equal to the mark
	Refused map[string]Mark // id → the leave that was refused, until its process stays again
	Tombs   map[string]bool // ids that were removed for good
}
