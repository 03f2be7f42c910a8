package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/stream-arrow/twgd/backup"
	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/store"
)

// openBackups opens the place of the cluster's backups, which the configuration must name. Whoever closes the bucket is done with both.
func openBackups(ctx context.Context, c *config.Cluster, spool string, log *slog.Logger) (*backup.Place, store.Bucket, error) {
	bucket, err := store.Open(ctx, string(c.Backup.To), store.Options{SpoolDir: spool})
	if err != nil {
		return nil, nil, err
	}
	place, err := backup.Open(bucket, c.Name, backup.Options{
		Keep: c.Backup.Keep, EncryptTo: c.Backup.EncryptTo, IdentityFile: c.Backup.IdentityFile, SpoolDir: spool, Log: log,
	})
	if err != nil {
		return nil, nil, errors.Join(err, bucket.Close())
	}
	return place, bucket, nil
}

// tryBackups tries the place of the backups, and reads the identity file.
func tryBackups(ctx context.Context, c *config.Cluster) error {
	_, bucket, err := openBackups(ctx, c, "", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return errors.Join(bucket.Probe(ctx), bucket.Close())
}
