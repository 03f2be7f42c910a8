package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print version, commit and Go", Example: "  twgd version -o json", Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := map[string]any{"version": version, "commit": commit, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				"sources": kinds(len(parts.Sources), func(i int) string { return parts.Sources[i].Name }),
				"sinks":   kinds(len(parts.Sinks), func(i int) string { return parts.Sinks[i].Name })}
			return show(cmd, v, func(to io.Writer) error {
				_, err := fmt.Fprintf(to, "twgd %s (%s), %s %s/%s\nsources: %v\nsinks:   %v\n", version, commit, v["go"], v["os"], v["arch"], v["sources"], v["sinks"])
				return err
			})
		},
	}
}

func kinds(n int, name func(int) string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = name(i)
	}
	return out
}
