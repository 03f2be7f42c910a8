// Package servers fetches, starts, waits for and stops the real servers that tests and benchmarks run against: an Apache Kafka broker,
// a PostgreSQL, an S3 server; proxies that make their networks fail; and a Python with readers that share no code with the project.
//
// Each function ([Kafka], [Postgres], [S3], [Python]) installs what it needs on first use, into [CacheDir] (PostgreSQL: by apt-get), and
// returns a server that is ready. Servers listen on free loopback ports, which they keep over Stop and Start, and have all their state
// in one temporary directory, which Close removes. They are children of the calling process and die with it, however it ends, so a test that
// panics or times out leaves nothing running. A server that can be neither found nor installed is an error of one line that says what is
// missing and how to get it: callers fail on it and never skip.
//
// The environment variables TWGD_E2E_BROKERS (host:port, comma separated), TWGD_E2E_PG (a postgres:// URL whose user may create
// databases) and TWGD_E2E_S3 (an http:// endpoint, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) name servers that run already. The
// handles then point at those, their options are ignored, and every method that would start, stop or pause one returns [ErrExternal].
//
// All handles may be used from several goroutines.
package servers

import (
	"errors"
	"fmt"
	"os/exec"
)

// ErrExternal is the answer of methods that would start, stop or pause a server that this process did not start.
var ErrExternal = errors.New("the server is external (TWGD_E2E_*): it is not ours to start or stop")

// Environment variables that name servers which run already.
const (
	EnvBrokers = "TWGD_E2E_BROKERS"
	EnvPG      = "TWGD_E2E_PG"
	EnvS3      = "TWGD_E2E_S3"
)

// need finds a program in PATH, or says in one line who needs it and how to get it.
func need(who, program, how string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s: %s is missing: %s", who, program, how)
	}
	return path, nil
}
