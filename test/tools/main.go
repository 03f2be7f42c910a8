// Tools installs what the end-to-end tests need, so that they find it there: go run ./test/tools.
// It is idempotent; where everything is installed it takes moments.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/stream-arrow/twgd/test/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := servers.Install(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}
