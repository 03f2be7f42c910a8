package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stream-arrow/twgd/sources"
)

// watchAlone looks for other members of the group, where raw is a directory of this process. Their partitions would be stored
// elsewhere, and no single raw would have everything. Our own predecessor that was killed carries our client id and is none.
func (s *Source) watchAlone() {
	for {
		other, err := s.wire.stranger(s.ctx, s.o.Group, s.o.Client)
		if s.ctx.Err() != nil {
			return
		}
		if err == nil {
			s.mu.Lock()
			s.accompanied(other)
			s.mu.Unlock()
		}
		if sleep(s.ctx, aloneEvery, nil) != nil {
			return
		}
	}
}

// aloneEvery is how often the group's members are looked at.
const aloneEvery = 5 * time.Second

// accompanied tells once that there is another member, and once that there is none any more.
func (s *Source) accompanied(other string) {
	if other == s.other {
		return
	}
	s.other = other
	held := sources.Held{Partition: s.whole()}
	if other != "" {
		held.Reason = fmt.Sprintf("group %s has another member, %s, while raw is a directory of this process: its partitions go elsewhere. "+
			"Stop it, or give all members one raw on object storage", s.o.Group, other)
	}
	s.tell(held)
}

// stranger is the client id of a member of the group that is not us, empty where there is none.
func (w *wire) stranger(ctx context.Context, group, us string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, w.Client)
	if err != nil {
		return "", err
	}
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return "", err
		}
		for _, m := range g.Members {
			if m.ClientID != us {
				return fmt.Sprintf("%s at %s", m.ClientID, m.ClientHost), nil
			}
		}
	}
	return "", nil
}
