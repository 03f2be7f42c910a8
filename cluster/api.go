package cluster

// The seam as cmd/twgd holds it:
//
//	func New(Options) (*Node, error)                                      // listens; decides nothing
//	func (n *Node) Run(ctx context.Context, drained <-chan struct{}) error
//	func (n *Node) Leases() *lease.Client
//	func (n *Node) Role() (voter bool)
//	func (n *Node) Subscribe(func(voter bool, budget float64))            // called at once and at each change
//	func (n *Node) Status() Status
//	func (n *Node) Ready() []string                                       // reasons why not; empty: ready
//	func (n *Node) Roles() []string
//	func (n *Node) Members() []MemberStatus
//	func (n *Node) Settings() map[string]string
//	func (n *Node) Leave(ctx context.Context, o LeaveOptions) error
//	func (n *Node) Tune(ctx context.Context, key, value string) error
//	func (n *Node) Backup(ctx context.Context) (backup.Info, error)
//
// For the directory of a stopped node:
//
//	func Restore(ctx context.Context, o Options, lost []string) (Restored, error)          // twgd restore [--lost]
//	func RestoreFromDisk(ctx context.Context, o Options, lost []string) (Restored, error)  // twgd restore --from-disk [--lost]
//	func Drop(dir string) error                                                            // twgd leave --drop where no node runs
//
// ErrUnsafe marks what is refused because it would be unsafe (exit code 5); its text names the flag that insists.
