//go:build e2e

// Package kill kills the program, again and again, while it works, and looks whether anything was lost or doubled.
package kill

import (
	"os"
	"testing"

	"github.com/stream-arrow/twgd/test/harness"
)

var suite *harness.Suite

func TestMain(m *testing.M) { os.Exit(harness.Main(m, &suite)) }
