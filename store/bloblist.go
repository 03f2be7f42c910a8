package store

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
)

// pageSize is what S3 gives at most in one listing request.
const pageSize = 1000

func (b *blobBucket) List(ctx context.Context, prefix, after string, limit int) ([]Entry, error) {
	var out []Entry
	token := b.startAfter(after)
	for token != nil {
		want := pageSize
		if limit > 0 {
			want = min(want, limit-len(out))
		}
		page, next, err := b.page(ctx, token, want, &blob.ListOptions{Prefix: b.prefix + prefix, BeforeList: b.beforeList(after, token)})
		if err != nil {
			return nil, b.wrap(ctx, "list", prefix, err)
		}
		out = b.appendEntries(out, page, after)
		token = next
		if limit > 0 && len(out) >= limit {
			return out[:limit], nil
		}
	}
	return out, nil
}

// startAfter is the first page's token: for memory the key itself, for S3, which has a field for it, none.
func (b *blobBucket) startAfter(after string) []byte {
	if after == "" || b.s3 != nil {
		return blob.FirstPageToken
	}
	return []byte(b.prefix + after)
}

func (b *blobBucket) beforeList(after string, token []byte) func(func(any) bool) error {
	if b.s3 == nil || after == "" || !slices.Equal(token, blob.FirstPageToken) {
		return nil
	}
	return func(as func(any) bool) error {
		var in *s3.ListObjectsV2Input
		if as(&in) {
			in.StartAfter = aws.String(b.prefix + after)
		}
		return nil
	}
}

func (b *blobBucket) page(ctx context.Context, token []byte, n int, opt *blob.ListOptions) ([]*blob.ListObject, []byte, error) {
	ctx, cancel := limit(ctx, b.timeout)
	defer cancel()
	page, next, err := b.b.ListPage(ctx, token, n, opt)
	if err != nil {
		err = withCause(ctx, err)
	}
	return page, next, err
}

// appendEntries leaves out what the store should not have shown (at or before after, which a store that knows no
// start-after sends) and the empty `dir/` objects that consoles make.
func (b *blobBucket) appendEntries(out []Entry, page []*blob.ListObject, after string) []Entry {
	for _, o := range page {
		key := strings.TrimPrefix(o.Key, b.prefix)
		if key > after && key != "" && !strings.HasSuffix(key, "/") {
			out = append(out, Entry{Key: key, Size: o.Size, Time: o.ModTime})
		}
	}
	return out
}

func (b *blobBucket) Dirs(ctx context.Context, prefix string) ([]string, error) {
	if err := checkDirPrefix(prefix); err != nil {
		return nil, &Error{Op: "list", Kind: ErrPermission, Err: err}
	}
	var out []string
	token := blob.FirstPageToken
	for token != nil {
		page, next, err := b.page(ctx, token, pageSize, &blob.ListOptions{Prefix: b.prefix + prefix, Delimiter: "/"})
		if err != nil {
			return nil, b.wrap(ctx, "list", prefix, err)
		}
		for _, o := range page {
			if o.IsDir {
				out = append(out, strings.TrimSuffix(strings.TrimPrefix(o.Key, b.prefix+prefix), "/"))
			}
		}
		token = next
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
