package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// putParts uploads an object in parts. Nothing of it can be seen before the completion, which alone is create-only and
// alone can leave the outcome unknown. An upload that fails is aborted, so that its parts are not stored and paid for;
// aborting after a completion whose reply was lost does no harm.
func (u *s3Uploads) putParts(ctx context.Context, o *outcome, key string, src source, part int64, m mode) error {
	id, err := u.begin(ctx, key)
	if err != nil {
		o.maybe = false
		return err
	}
	parts, err := u.uploadParts(ctx, key, id, src, part)
	o.maybe = false // so far nothing had a name
	if err == nil {
		err = u.complete(ctx, key, id, parts, m)
	}
	if err != nil {
		u.abort(ctx, key, id)
	}
	return err
}

func (u *s3Uploads) begin(ctx context.Context, key string) (id *string, err error) {
	ctx, cancel := limit(ctx, u.timeout)
	defer cancel()
	out, err := u.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &u.bucket, Key: aws.String(u.prefix + key), ContentType: aws.String(contentType),
		ChecksumAlgorithm: u.checksum(), ServerSideEncryption: u.encryption, SSEKMSKeyId: u.kmsKey,
	})
	if err != nil {
		return nil, withCause(ctx, err)
	}
	return out.UploadId, nil
}

// uploadParts sends one part after another, each with its own time limit.
func (u *s3Uploads) uploadParts(ctx context.Context, key string, id *string, src source, part int64) ([]types.CompletedPart, error) {
	var parts []types.CompletedPart
	for off := int64(0); off < src.size; off += part {
		p, err := u.uploadPart(ctx, key, id, int32(len(parts)+1), io.NewSectionReader(src, off, min(part, src.size-off)))
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func (u *s3Uploads) uploadPart(ctx context.Context, key string, id *string, n int32, body *io.SectionReader) (types.CompletedPart, error) {
	ctx, cancel := limit(ctx, u.timeout)
	defer cancel()
	out, err := u.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &u.bucket, Key: aws.String(u.prefix + key), UploadId: id, PartNumber: &n,
		Body: body, ContentLength: aws.Int64(body.Size()), ChecksumAlgorithm: u.checksum(),
	})
	if err != nil {
		return types.CompletedPart{}, fmt.Errorf("part %d: %w", n, withCause(ctx, err))
	}
	return types.CompletedPart{
		ETag: out.ETag, PartNumber: &n, ChecksumCRC32: out.ChecksumCRC32, ChecksumCRC32C: out.ChecksumCRC32C,
		ChecksumCRC64NVME: out.ChecksumCRC64NVME, ChecksumSHA1: out.ChecksumSHA1, ChecksumSHA256: out.ChecksumSHA256,
	}, nil
}

// checksum is the algorithm of the parts' checksums. It has to be named at the beginning: servers refuse parts whose
// checksum the upload did not announce, and the library announces none by itself. A server that knows none gets none,
// with request_checksum_calculation=when_required.
func (u *s3Uploads) checksum() types.ChecksumAlgorithm {
	if u.client.Options().RequestChecksumCalculation == aws.RequestChecksumCalculationWhenRequired {
		return ""
	}
	return types.ChecksumAlgorithmCrc32
}

func (u *s3Uploads) complete(ctx context.Context, key string, id *string, parts []types.CompletedPart, m mode) error {
	ctx, cancel := limit(ctx, u.timeout)
	defer cancel()
	_, err := u.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &u.bucket, Key: aws.String(u.prefix + key), UploadId: id, IfNoneMatch: m.ifNoneMatch(),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	if err != nil {
		return withCause(ctx, err)
	}
	return nil
}

// abort is best effort, and happens though the caller's context has ended. What it leaves is removed by the bucket's
// lifecycle rule for incomplete uploads.
func (u *s3Uploads) abort(ctx context.Context, key string, id *string) {
	ctx, cancel := limit(context.WithValue(context.WithoutCancel(ctx), outcomeKey{}, nil), u.timeout)
	defer cancel()
	u.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.bucket, Key: aws.String(u.prefix + key), UploadId: id})
}

// neverSent tells that a request failed before a connection was there to send it on.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || badTLS(err)
}

// badTLS tells that the two sides do not agree on whom they talk to, or how.
func badTLS(err error) bool {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &cert) || errors.As(err, &record)
}
