// Command twgd moves Kafka topics into a durable raw store first, and from there into Parquet, Postgres and more.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/admin"
	"github.com/stream-arrow/twgd/config"
)

// Stamped by the build.
var (
	version = "dev"
	commit  = "unknown"
)

// Exit codes, as docs/guide/commands.md lists them.
const (
	exitDone    = 0
	exitFailed  = 1 // failed while working
	exitUsage   = 2 // usage or configuration
	exitAudit   = 3 // audit found something unaccounted for
	exitDamaged = 4 // damaged data
	exitRefused = 5 // refused because it would be unsafe
)

// exit is an error that says which code the program ends with. Its text is printed unless it is empty.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }

func fail(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exit{code, err}
}

func main() {
	ctx, stop := untilSignal()
	err := root().ExecuteContext(ctx)
	stop()
	os.Exit(report(os.Stderr, err))
}

// untilSignal ends the context at the first SIGTERM or SIGINT. The second one ends the process at once.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		cancel()
		<-signals
		fmt.Fprintln(os.Stderr, "twgd: told twice, ending at once; what was not stored is read again")
		os.Exit(exitFailed)
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}

// report prints an error for people and returns the exit code.
func report(to io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	var e *exit
	var remote *admin.Error
	var problems config.Problems
	switch {
	case errors.As(err, &problems): // each line names its place, as editors and terminals like it
		fmt.Fprintln(to, problems.Error())
		return exitUsage
	case errors.As(err, &e):
		if e.Error() != "" {
			fmt.Fprintln(to, "twgd:", e.Error())
		}
		return e.code
	case errors.As(err, &remote):
		fmt.Fprintln(to, "twgd:", remote.Text)
		return remote.Exit
	}
	fmt.Fprintln(to, "twgd:", err)
	return exitFailed
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use: "twgd", Version: fmt.Sprintf("%s (%s)", version, commit),
		Short: "Move Kafka topics into a durable raw store, and from there into Parquet and Postgres; lose nothing, and prove it",
		Long: "twgd takes records from Kafka into a durable raw store first, tells Kafka so only then, and fills Parquet files and Postgres\n" +
			"tables from there. A sink that is down, slow or refuses a record holds up nothing else and is filled later.",
		SilenceUsage: true, SilenceErrors: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			text := fmt.Sprintf("there is no command %q; see `twgd --help`", args[0])
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				text = fmt.Sprintf("there is no command %q; did you mean %s?", args[0], strings.Join(near, " or "))
			}
			return fail(exitUsage, errors.New(text))
		},
		SuggestionsMinimumDistance: 2,
	}
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fail(exitUsage, fmt.Errorf("%w; see `%s --help`", err, c.CommandPath()))
	})
	cmd.PersistentFlags().StringP("output", "o", "text", "text or json")
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if o, _ := cmd.Flags().GetString("output"); o != "text" && o != "json" {
			return fail(exitUsage, fmt.Errorf("-o %s: the output is text or json", o))
		}
		return nil
	}
	cmd.AddCommand(runCommand(), joinCommand(), stopCommand(), leaveCommand(), statusCommand(), membersCommand(), tuneCommand(), backupCommand(), restoreCommand(), validateCommand(), configCommand(), auditCommand(), rawCommand(), recoverCommand(),
		quarantineCommand(), demoCommand(), versionCommand())
	return cmd
}

// group is a command that only holds others. Called without one of them it shows its help; another word is a mistake.
func group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Example: example, Args: cobra.ArbitraryArgs}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var names []string
		for _, c := range commands {
			names = append(names, c.Name())
		}
		return fail(exitUsage, fmt.Errorf("there is no command `%s %s`; there is %s; see `%s --help`", cmd.CommandPath(), args[0], strings.Join(names, ", "), cmd.CommandPath()))
	}
	cmd.AddCommand(commands...)
	return cmd
}

// usage makes a mistake in arguments an exit with code 2.
func usage(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, a []string) error {
		if err := args(cmd, a); err != nil {
			return fail(exitUsage, fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath()))
		}
		return nil
	}
}
