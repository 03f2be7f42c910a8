package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/stream-arrow/twgd/config"
)

func configCommand() *cobra.Command {
	return group("config", "Print the JSON Schema, an annotated example, or the effective configuration", "  twgd config example > twgd.yaml",
		printing("schema", "Print a JSON Schema of the configuration, for editors", func(*cobra.Command, string) ([]byte, error) { return config.Schema(parts), nil }),
		printing("example", "Print an annotated example with every key and its default", func(cmd *cobra.Command, _ string) ([]byte, error) {
			return asOutput(cmd, config.Example(parts))
		}),
		printing("show", "Print the effective configuration: every key, defaults included, secrets hidden", func(cmd *cobra.Command, file string) ([]byte, error) {
			cfg, err := loadConfig(file)
			if err != nil {
				return nil, err
			}
			return asOutput(cmd, config.Show(cfg))
		}))
}

func printing(name, short string, f func(cmd *cobra.Command, file string) ([]byte, error)) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Example: "  twgd config " + name, Args: usage(cobra.NoArgs)}
	file := new(string)
	if name == "show" {
		cmd.Use, cmd.Example = "show -c FILE", "  twgd config show -c twgd.yaml"
		file = configFlag(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, err := f(cmd, *file)
		if err == nil {
			_, err = cmd.OutOrStdout().Write(out)
		}
		return err
	}
	return cmd
}

// asOutput turns YAML into JSON where that is asked for.
func asOutput(cmd *cobra.Command, text []byte) ([]byte, error) {
	if !asJSON(cmd) {
		return text, nil
	}
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("reading our own YAML: %w", err)
	}
	out, err := json.MarshalIndent(v, "", "  ")
	return append(out, '\n'), err
}
