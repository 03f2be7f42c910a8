package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Install fetches everything that this package's servers need and prints a line for each part. It goes on after a part that fails; the error names all.
func Install(ctx context.Context, out io.Writer) error {
	parts := []struct {
		name    string
		install func(context.Context) (string, error)
	}{
		{"Apache Kafka " + kafkaVersion, installKafka},
		{"PostgreSQL", installPostgres},
		{"versitygw " + versitygw, installVersitygw},
		{"Python readers", Python},
	}
	var errs []error
	for _, p := range parts {
		where, err := p.install(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(out, "%-20s %s\n", p.name, where)
	}
	return errors.Join(errs...)
}
